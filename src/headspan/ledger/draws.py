"""Random numbers for one check, and how far they are from a law.

Every check has its own stream, so that no check moves when another is added or left out.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor


class Draws:
    """Random arrays in float64, fixed by a seed and the name of the claim."""

    def __init__(self, seed: int, name: str) -> None:
        # torch uses the lowest 32 bits of a seed and drops the rest
        self.generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {seed}".encode()))

    def normal(self, *shape: int, sd: float = 1.0) -> Tensor:
        """Independent N(0, sd^2)."""
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64) * sd

    def uniform(self, *shape: int) -> Tensor:
        """Independent, uniform on [0, 1)."""
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def sphere(self, *shape: int, radius: float = 1.0) -> Tensor:
        """Points uniform on the sphere of that radius; the last axis holds coordinates."""
        x = self.normal(*shape)
        norms: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return radius * x / norms

    def pairs_at(self, cosine: float, count: int, n: int) -> tuple[Tensor, Tensor]:
        """Pairs of unit vectors `[count, n]`, each uniform, at a given cosine."""
        x, other = self.sphere(count, n), self.normal(count, n)
        other -= (other * x).sum(-1, keepdim=True) * x
        return x, cosine * x + (1 - cosine**2) ** 0.5 * torch.nn.functional.normalize(other, dim=-1)

    def haar(self, n: int, count: int | None = None) -> Tensor:
        """Orthogonal matrices `[count, n, n]` (or one `[n, n]`), uniform by Haar measure."""
        q: Tensor
        q, r = torch.linalg.qr(self.normal(*(() if count is None else (count,)), n, n))
        return q * torch.diagonal(r, dim1=-2, dim2=-1).sign().unsqueeze(-2)

    def covariance(self, n: int, floor: float = 0.3) -> Tensor:
        """A covariance `[n, n]` in general position, eigenvalues at least `floor`."""
        x = self.normal(n, 2 * n)
        return x @ x.T / (2 * n) + floor * torch.eye(n, dtype=torch.float64)

    def gaussian(self, mean: Tensor, covariance: Tensor, count: int) -> Tensor:
        """`count` draws `[count, n]` of N(mean, covariance)."""
        root: Tensor = torch.linalg.cholesky(covariance)
        return mean + self.normal(count, mean.shape[-1]) @ root.T

    def seed(self) -> int:
        """A seed for a function that takes one."""
        return int(torch.randint(2**31, (1,), generator=self.generator))


def ks_distance(share: Tensor) -> float:
    """Kolmogorov-Smirnov distance of draws from a law, given F(draw) of all; in [0, 1], 0 for a perfect fit."""
    ordered = share.flatten().sort().values
    steps = torch.arange(len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return float(torch.maximum((ordered - steps[:-1]).max(), (steps[1:] - ordered).max()))
