"""States of the running model: whether they become alike with depth, and whether attention follows their angles.

Of the stream entering each layer: `mean_cosine` between the states of different positions, in [-1, 1], 0 for isotropic
random states; `residual` ||X - mean row|| / ||X||, in [0, 1], near 1 for such states; `effective_rank`, the exponential
of the entropy of the singular values (Roy and Vetterli 2007), beside that of normal random states of the same shape. Of
the maps: the number of singular values above `TOLERANCE` of the largest, beside that of uniform attention; a map of
rank 1 gives every position the same mixture.

Does attention follow the angles between states? Rank correlation of attention and cosine, with a permutation test:

1. Pairs of different positions that attention can join: key before query if causal, both ways otherwise.
2. Attention relative to uniform, A_ij (i + 1) if causal, since early rows hold larger numbers whatever a head does.
3. Spearman's correlation over these pairs with the cosine of the two states: of the embeddings, and of the stream that
   enters the layer.
4. Null: the same attention with the states dealt to positions at random. All pairs keep their cosines' ranks, so that
   one ranking serves every permutation.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.lenses.attention.maps import uniform_pattern
from headspan.runtime import Forward
from headspan.statistics import random_singular_values, standard_ranks
from headspan.threads import one_thread

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

TOLERANCE = 0.01
DRAWS = 20


def state_statistics(states: Float[Tensor, "layer position d_model"]) -> dict[str, Float[Tensor, " layer"]]:
    """`mean_cosine`, `residual` and `effective_rank` of the states entering each layer; NaN for a single position."""
    X, n = states.double(), states.shape[1]
    if n == 1:
        return dict.fromkeys(("mean_cosine", "residual", "effective_rank"), torch.full((len(X),), torch.nan))
    unit = torch.nn.functional.normalize(X, dim=-1)
    centered = X - X.mean(dim=1, keepdim=True)
    with one_thread():
        values: Tensor = torch.linalg.svdvals(X)
    return {
        "mean_cosine": (unit.sum(dim=1).square().sum(-1) - n) / (n * (n - 1)),
        "residual": centered.flatten(1).norm(dim=1) / X.flatten(1).norm(dim=1),
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
    return (values > TOLERANCE * values[..., :1]).sum(-1)


def uniform_map_rank(n: int, causal: bool) -> int:
    """The numerical rank of uniform attention: 1 without a mask, more where the mask is causal."""
    return int(numerical_rank(uniform_pattern(n, causal)[0]))


def cosines(states: Float[Tensor, "position d_model"]) -> Float[Tensor, "position position"]:
    """Cosine of the angle between every two states, in [-1, 1]; 0 on average for isotropic random states."""
    unit = torch.nn.functional.normalize(states.double(), dim=-1)
    return unit @ unit.T


def angular_correlation(
    pattern: Float[Tensor, "head query key"],
    cosine: Float[Tensor, "kind position position"],
    causal: bool,
    permutations: int,
    seed: int,
) -> tuple[Array, Array]:
    """Spearman's correlation of attention with cosines, per kind of cosine and head, and its p-value.

    Parameters
    ----------
    pattern
        Attention of the heads of one layer.
    cosine
        Of states at the same positions, one matrix per kind of state.
    causal
        Whether keys lie before queries.
    permutations, seed
        How many random dealings of states to positions, and what fixes them.

    Returns
    -------
    correlation : [kind, head], in [-1, 1]; 0 expected under the null, NaN for fewer than 3 pairs, or where attention or
        cosine does not vary.
    p_value : [kind, head], two-sided, in [1 / (permutations + 1), 1].
    """
    n, shape = pattern.shape[-1], (len(cosine), len(pattern))
    query, key = np.tril_indices(n, -1)
    if not causal:
        query, key = np.concatenate([query, key]), np.concatenate([key, query])
    if len(query) < 3:
        return np.full(shape, np.nan), np.full(shape, np.nan)
    relative = pattern.double().numpy()[:, query, key] * (query + 1 if causal else 1)
    # As whole matrices, zero where there is no pair: rows and columns are dealt far quicker than single entries.
    attention = np.zeros((len(pattern), n, n))
    attention[:, query, key] = standard_ranks(relative) / len(query)
    flat = attention.reshape(len(pattern), -1).T
    ranks = np.stack([_rank_matrix(each.numpy(), query, key) for each in cosine])
    found: Array = ranks.reshape(len(ranks), -1) @ flat
    beyond, generator = np.ones(shape), np.random.default_rng(seed)
    for _ in range(permutations):
        order = generator.permutation(n)
        dealt = ranks.take(order, axis=1).take(order, axis=2)
        beyond += np.abs(dealt.reshape(len(ranks), -1) @ flat) >= np.abs(found) - 1e-12
    return found, np.where(np.isnan(found), np.nan, beyond / (permutations + 1))


def _rank_matrix(cosine: Array, query: Index, key: Index) -> Array:
    """Standardized ranks of the cosines over all pairs, as a symmetric matrix; dealing positions anew keeps them."""
    matrix = np.zeros(cosine.shape)
    # Rounding tells equal tokens apart, whose cosines are equal.
    matrix[query, key] = matrix[key, query] = standard_ranks(np.round(cosine[query, key], 12))
    return matrix
