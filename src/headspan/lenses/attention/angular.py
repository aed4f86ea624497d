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
from scipy import stats  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

Array = npt.NDArray[np.float64]


def cosines(states: Float[Tensor, "position d_model"]) -> Float[Tensor, "position position"]:
    """Cosine of the angle between every two states, in [-1, 1]; 0 on average for isotropic random states."""
    unit = torch.nn.functional.normalize(states.double(), dim=-1)
    return unit @ unit.T


def angular_correlation(
    pattern: Float[Tensor, "head query key"],
    cosine: Float[Tensor, "position position"],
    causal: bool,
    permutations: int,
    seed: int,
) -> tuple[Array, Array]:
    """Spearman's correlation of attention with cosine, per head, and its p-value.

    Parameters
    ----------
    pattern
        Attention of the heads of one layer.
    cosine
        Of the states at the same positions.
    causal
        Whether keys lie before queries.
    permutations, seed
        How many random dealings of states to positions, and what fixes them.

    Returns
    -------
    correlation : [head], in [-1, 1]; 0 by chance, NaN where attention or cosine does not vary or pairs are under 3.
    p_value : [head], two-sided, in [1 / (permutations + 1), 1].
    """
    n = pattern.shape[-1]
    query, key = np.tril_indices(n, -1)
    if not causal:
        query, key = np.concatenate([query, key]), np.concatenate([key, query])
    if len(query) < 3:
        return np.full(len(pattern), np.nan), np.full(len(pattern), np.nan)
    relative = pattern.double().numpy()[:, query, key] * (query + 1 if causal else 1)
    attention = _standardized(stats.rankdata(relative, axis=-1))
    ranks = np.zeros((n, n))
    ranks[query, key] = stats.rankdata(np.round(cosine.numpy()[query, key], 12))
    ranks = np.maximum(ranks, ranks.T)
    found: Array = attention @ _standardized(ranks[query, key]) / len(query)
    beyond = np.ones(len(found))
    generator = np.random.default_rng(seed)
    for _ in range(permutations):
        order = generator.permutation(n)
        drawn = attention @ _standardized(ranks[order[query], order[key]]) / len(query)
        beyond += np.abs(drawn) >= np.abs(found) - 1e-12
    return found, np.where(np.isnan(found), np.nan, beyond / (permutations + 1))


def _standardized(ranks: Array) -> Array:
    """Ranks with mean 0 and variance 1; NaN where all are equal."""
    spread = ranks.std(axis=-1, keepdims=True)
    standard: Array = (ranks - ranks.mean(axis=-1, keepdims=True)) / np.where(spread > 0, spread, np.nan)
    return standard
