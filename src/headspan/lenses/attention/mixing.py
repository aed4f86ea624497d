"""Whether tokens become alike with depth: states of the running model, and ranks of its maps.

Of the stream entering each layer: `mean_cosine` between the states of different positions, in [-1, 1], 0 for isotropic
random states; `residual` ||X - mean row|| / ||X||, in [0, 1], near 1 for such states; `effective_rank`, the exponential
of the entropy of the singular values (Roy and Vetterli 2007), beside that of normal random states of the same shape. Of
the maps: the number of singular values above `TOLERANCE` of the largest, beside that of uniform attention; a map of
rank 1 gives every position the same mixture.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.lenses.attention.statistics import uniform_pattern
from headspan.runtime import Forward
from headspan.statistics import random_singular_values
from headspan.subspaces import spectrum_rank
from headspan.threads import one_thread

TOLERANCE = 0.01
DRAWS = 20


def state_statistics(states: Float[Tensor, "layer position d_model"]) -> dict[str, Float[Tensor, " layer"]]:
    """`mean_cosine`, `residual` and `effective_rank` of the states entering each layer; NaN for a single position."""
    X, n = states.double(), states.shape[1]
    if n == 1:
        return dict.fromkeys(("mean_cosine", "residual", "effective_rank"), torch.full((len(X),), torch.nan))
    unit = torch.nn.functional.normalize(X, dim=-1)
    centred = X - X.mean(dim=1, keepdim=True)
    with one_thread():
        values: Tensor = torch.linalg.svdvals(X)
    return {
        "mean_cosine": (unit.sum(dim=1).square().sum(-1) - n) / (n * (n - 1)),
        "residual": centred.flatten(1).norm(dim=1) / X.flatten(1).norm(dim=1),
        "effective_rank": effective_rank(values),
    }


def effective_rank(values: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """exp(-sum w log w) with w the singular values over their sum, in [1, k]."""
    weight = values / values.sum(-1, keepdim=True)
    entropy: Tensor = torch.special.entr(weight).sum(-1)
    return entropy.exp()


def random_effective_rank(n: int, d_model: int, seed: int = 0) -> float:
    """Mean effective rank of n states of independent normal entries."""
    return float(effective_rank(random_singular_values(n, d_model, DRAWS, seed)).mean())


def map_ranks(run: Forward) -> tuple[Int[Tensor, "depth head"], Int[Tensor, " depth"]]:
    """Numerical rank of every head's map and of each layer's head average, in [1, position]."""
    heads = [numerical_rank(attention.pattern[0].cpu()) for attention in run.runs]
    means = [numerical_rank(attention.pattern[0].cpu().double().mean(dim=0)) for attention in run.runs]
    return torch.stack(heads), torch.stack(means)


def numerical_rank(maps: Float[Tensor, "*batch query key"]) -> Int[Tensor, "*batch"]:
    """How many singular values exceed `TOLERANCE` times the largest."""
    with one_thread():
        # float32 is far finer than the tolerance, and twice as fast.
        values: Tensor = torch.linalg.svdvals(maps.float())
    return spectrum_rank(values, TOLERANCE)


def uniform_map_rank(n: int, causal: bool) -> int:
    """The numerical rank of uniform attention: 1 without a mask, more where the mask is causal."""
    return int(numerical_rank(uniform_pattern(n, causal)[0]))
