"""States of the running model: whether they become alike with depth, and whether attention follows their angles.

Of the stream entering each layer: `mean_cosine` between the states of different positions, in [-1, 1], 0 for isotropic
random states; `residual` ||X - mean row|| / ||X||, in [0, 1], near 1 for such states; `effective_rank`, the exponential
of the entropy of the singular values (Roy and Vetterli 2007), beside that of normal random states of the same shape. Of
the maps: the number of singular values above `TOLERANCE` of the largest, beside that of uniform attention; a map of
rank 1 gives every position the same mixture.

Does attention follow the angles between states? Rank correlation of attention and cosine, with a permutation test:

1. Pairs of different positions that attention can join: key before query if causal, both ways otherwise.
2. Log attention and the cosine of the two states (of the embeddings, and of the stream that enters the layer), each
   less what the query, the key and their distance explain by themselves (least squares): a head that knows positions
   only, and states that resemble their neighbors, have a course over distances in common whatever the text says.
3. Spearman's correlation of what is left.
4. Null: the same attention with the states moved along the sequence in a circle, forward and reversed. Neighbors stay
   neighbors, so that autocorrelation is kept. There are 2n - 1 such arrangements of n positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from headspan.lenses.attention.maps import uniform_pattern
from headspan.runtime import Forward
from headspan.statistics import random_singular_values, standard_ranks
from headspan.threads import one_thread

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

TOLERANCE = 0.01
DRAWS = 20
FEWEST = 8
"""Positions that the test of angles needs."""
TINY, RIDGE, REFINEMENTS, WHOLLY = 1e-30, 1e-6, 3, 1e-4


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
    """Spearman's correlation of attention with cosines beyond position, per kind of cosine and head, and its p-value.

    Parameters
    ----------
    pattern
        Attention of the heads of one layer.
    cosine
        Of states at the same positions, one matrix per kind of state.
    causal
        Whether keys lie before queries.
    permutations, seed
        How many arrangements of the states at most; where there are more, which are taken.

    Returns
    -------
    correlation : [kind, head], in [-1, 1]; 0 expected under the null, NaN for fewer than 8 positions, or where position
        explains attention or cosines wholly.
    p_value : [kind, head], two-sided, at least 1 / (2 n) for n positions.
    """
    n, shape = pattern.shape[-1], (len(cosine), len(pattern))
    if n < FEWEST:
        return np.full(shape, np.nan), np.full(shape, np.nan)
    query, key = np.tril_indices(n, -1)
    if not causal:
        query, key = np.concatenate([query, key]), np.concatenate([key, query])
    effects = PositionEffects.of(query, key, n)
    attention = _standard_rests(np.log(np.maximum(pattern.double().numpy()[:, query, key], TINY)), effects)
    # Rounding tells equal tokens apart, whose cosines are equal.
    angles = np.zeros((len(cosine), n, n))
    angles[:, query, key] = _standard_rests(np.round(cosine.numpy()[:, query, key], 12), effects)
    if causal:
        angles += angles.transpose(0, 2, 1)
    found: Array = angles[:, query, key] @ attention.T
    beyond = np.ones(shape)
    orders = _arrangements(n, permutations, seed)
    for order in orders:
        moved = angles[:, order][:, :, order][:, query, key]
        beyond += np.abs(moved @ attention.T) >= np.abs(found) - 1e-12
    return found, np.where(np.isnan(found), np.nan, beyond / (len(orders) + 1))


def _arrangements(n: int, most: int, seed: int) -> list[Index]:
    """All positions moved in a circle, forward and reversed, without the identity; `most` where there are more."""
    forward = [np.roll(np.arange(n), -shift) for shift in range(n)]
    found = forward[1:] + [order[::-1] for order in forward]
    if len(found) <= most:
        return found
    return [found[place] for place in np.random.default_rng(seed).permutation(len(found))[:most]]


@dataclass(frozen=True, eq=False)
class PositionEffects:
    """What query, key and their distance explain of a quantity over pairs, by least squares."""

    groups: tuple[Index, Index, Index]
    """Of every pair: query, key, and distance (from 0)."""
    n: int
    factor: tuple[Array, bool]

    @classmethod
    def of(cls, query: Index, key: Index, n: int) -> PositionEffects:
        groups = (query, n + key, 2 * n + query - key + (n - 1))
        size = 4 * n
        counts = sum(
            np.bincount(a * size + b, minlength=size * size).reshape(size, size) for a in groups for b in groups
        )
        # The effects are known up to constants; the ridge picks one of the solutions.
        return cls(groups, n, cho_factor(counts + RIDGE * np.eye(size)))

    def rest(self, values: Array) -> Array:
        """Values [..., pair] less their fit."""
        left = values - values.mean(-1, keepdims=True)
        for _ in range(REFINEMENTS):
            sums = np.zeros((*values.shape[:-1], 4 * self.n))
            for row, total in zip(left.reshape(-1, left.shape[-1]), sums.reshape(-1, sums.shape[-1]), strict=True):
                total += sum(np.bincount(group, row, minlength=4 * self.n) for group in self.groups)
            coefficients = cho_solve(self.factor, sums.reshape(-1, sums.shape[-1]).T).T.reshape(sums.shape)
            left = left - sum(coefficients[..., group] for group in self.groups)
        rest: Array = left
        return rest


def _standard_rests(values: Array, effects: PositionEffects) -> Array:
    """Ranks of the rests, again without position effects, of length 1 each; NaN where position explains all."""
    rest = effects.rest(values)
    known = rest.std(-1) > WHOLLY * np.maximum(values.std(-1), TINY)
    # Rounding: rests of pairs that are alike (both ways, in an encoder) are equal but for the last digits.
    told = np.round(rest / np.maximum(rest.std(-1, keepdims=True), TINY), 7)
    ranks = effects.rest(standard_ranks(np.where(known[:, None], told, np.arange(rest.shape[-1]))))
    standard: Array = np.where(known[:, None], ranks / np.linalg.norm(ranks, axis=-1, keepdims=True), np.nan)
    return standard
