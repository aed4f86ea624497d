"""Does attention follow the angles between states? Rank correlation of attention and cosine, with a permutation test.

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
from jaxtyping import Float
from torch import Tensor

from headspan.statistics import standard_ranks

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


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
    correlation : [kind, head], in [-1, 1]; 0 by chance, NaN where attention or cosine does not vary, or under 3 pairs.
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
