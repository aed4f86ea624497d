r"""Collapse of tokens under random layers, over operator norms, ranks of W_QK and shares of attention.

Every setting sees the same sequences and the same draws of weights (the generator is seeded anew), so that differences
between settings come from the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.mixing import layers_applied, random_layers
from headspan.distributions.token_course import mean_cosine, token_residual
from headspan.errors import ShapeError


@dataclass(frozen=True)
class MixingSweep:
    """`cosine` and `residual` [norm, rank, beta, depth + 1], means over sequences."""

    norms: tuple[float, ...]
    ranks: tuple[int, ...]
    betas: tuple[float, ...]
    cosine: Tensor
    residual: Tensor


def mixing_sweep(
    X: Float[Tensor, "samples n d"],
    norms: Sequence[float],
    ranks: Sequence[int],
    betas: Sequence[float],
    depth: int,
    seed: int,
    norm: bool = False,
) -> MixingSweep:
    """Mean cosine and residual of tokens by depth, for every operator norm (of all three weights), rank and beta."""
    if depth < 1 or not (len(norms) and len(ranks) and len(betas)):
        raise ShapeError(f"a sweep needs a depth of at least 1 and one value of each setting, found a depth of {depth}")
    shape = (len(norms), len(ranks), len(betas), depth + 1)
    cosine, residual = torch.full(shape, torch.nan).double(), torch.full(shape, torch.nan).double()
    for i, size in enumerate(norms):
        for j, rank in enumerate(ranks):
            generator = torch.Generator().manual_seed(seed)
            layers = random_layers(X.shape[-1], depth, generator, rank, (size, size, size))
            for k, beta in enumerate(betas):
                states, _ = layers_applied(X, layers, beta, norm)
                for at, Z in enumerate(states):
                    cosine[i, j, k, at], residual[i, j, k, at] = mean_cosine(Z).mean(), token_residual(Z).mean()
    return MixingSweep(tuple(norms), tuple(ranks), tuple(betas), cosine, residual)
