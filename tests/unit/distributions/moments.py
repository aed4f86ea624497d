"""Covariances and numbers that the tests of Gaussians share."""

from __future__ import annotations

import torch


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=stream(seed), dtype=torch.float64)


def covariances(*shape: int, seed: int = 0) -> torch.Tensor:
    """[..., d, d] in general position, for shape (..., d)."""
    x = normal(*shape, 2 * shape[-1], seed=seed)
    return x @ x.mT / (2 * shape[-1])


def flat_covariance(d: int, rank: int, seed: int = 0) -> torch.Tensor:
    x = normal(d, rank, seed=seed)
    return x @ x.T
