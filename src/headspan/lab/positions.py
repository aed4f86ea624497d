"""How the small models know where a token stands.

Rotary positions turn queries and keys. A table, learned or of sines, is added to the tokens. ALiBi takes from each
logit a multiple of the offset, with one slope per head. Relative positions add to each logit a learned number of its
head and offset: offsets below half the number of buckets have one each, longer ones share buckets whose width grows
with the offset, and all from the trained length on share the last (as in T5, but with a table for each layer).

Everything is made as NumPy and kept: a tensor that is made inside a derivative must not outlive it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from torch import Tensor

MOST_BUCKETS = 32


@lru_cache(maxsize=16)
def rotary_angles(T: int, d_head: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin [position, d_head] of t * theta^(-2 i / d_head), for both halves of the features, the first half's
    sines negative."""
    angle = np.arange(T)[:, None] * theta ** (-2 * np.arange(d_head // 2) / d_head)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate((cosine, cosine), axis=1), np.concatenate((-sine, sine), axis=1)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions: features i and i + d_head/2 turned together."""
    return (x * cosine).addcmul(x.roll(x.shape[-1] // 2, -1), sine)


@lru_cache(maxsize=16)
def sinusoids(T: int, d_model: int, theta: float) -> np.ndarray:
    """[position, d_model]: sines of t * theta^(-2 i / d_model), then as many cosines."""
    angle = np.arange(T)[:, None] * theta ** (-2 * np.arange((d_model + 1) // 2) / d_model)
    return np.concatenate((np.sin(angle), np.cos(angle)), axis=1)[:, :d_model]


@lru_cache(maxsize=16)
def alibi_terms(T: int, heads: int) -> np.ndarray:
    """[head, query, key]: minus the slope 2^(-8 h / heads) of head h = 1, 2, ... times the offset, as published.

    References
    ----------
    Press, Smith and Lewis (2022), Train short, test long: attention with linear biases enables input length
    extrapolation.
    """
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    terms: np.ndarray = -slopes[:, None, None] * offsets(T)
    return terms


@lru_cache(maxsize=16)
def offsets(T: int) -> np.ndarray:
    """[query, key]: query position less key position, 0 for keys that lie ahead."""
    place = np.arange(T)
    ahead: np.ndarray = np.maximum(place[:, None] - place, 0)
    return ahead


def bucket_count(length: int) -> int:
    """Buckets of relative offsets for sequences of a trained length: at most 32, and never more than offsets."""
    return min(MOST_BUCKETS, length)


@lru_cache(maxsize=16)
def offset_buckets(T: int, length: int) -> np.ndarray:
    """[query, key], the bucket of each offset: one each below half their number, then growing with the logarithm.

    References
    ----------
    Raffel et al. (2020), Exploring the limits of transfer learning with a unified text-to-text transformer.
    """
    buckets = bucket_count(length)
    exact, offset = max(buckets // 2, 1), offsets(T)
    share = np.log(np.maximum(offset, 1) / exact) / np.log(max(length, exact + 1) / exact)
    wide = np.minimum(exact + (share * (buckets - exact)).astype(int), buckets - 1)
    return np.where(offset < exact, offset, wide)
