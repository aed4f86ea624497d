"""The two affinity scores of every ordered pair of heads, each with its law under the `haar` null."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.heads import Heads
from headspan.lenses.affinity.pair_tables import KernelTables, OverlapTables, roles_of
from headspan.statistics.permutation import Array
from headspan.subspaces import kernel_null_mean, kernel_null_variance, log_upper_tail
from headspan.subspaces.rotation_null import energy_shares, log_rotation_tail, rotation_variance

TAIL_PAIRS = 2**18
"""Pairs whose p-values are found at a time: the arithmetic of tails takes some twenty arrays of that length."""


@dataclass(frozen=True)
class Score:
    """One score of all ordered pairs [src_layer, src_head, dst_layer, dst_head], whether they compose or not."""

    values: Array
    haar_p: Array
    chance_mean: float
    chance_std: float


def pair_shape(heads: Heads, pairing: str) -> tuple[int, int, int, int]:
    """Lengths of the four axes of a pairing's scores."""
    src, dst = (heads.shape(role) for role in roles_of(pairing))
    return (*src[:2], *dst[:2])


def kernel_scores(heads: Heads, found: KernelTables) -> dict[str, Score]:
    """The projection kernel ||U^T V||_F^2 of every pair, in [0, min(p, q)], for each pairing.

    Haar null: two independent subspaces in general position; mean pq/d. p-values use each pair's true dimensions, the
    two chance numbers those of heads of full rank.
    """
    scores, d = {}, heads.d_model
    for pairing, kernel in found.tables.items():
        src, dst = (found.ranks[role] for role in roles_of(pairing))
        p, q = (min(heads.shape(role)[2:]) for role in roles_of(pairing))
        shape = pair_shape(heads, pairing)
        p_values = _by_rows(kernel, src[:, None], partial(_log_kernel_tail, dst[None, :], d))
        scores[pairing] = Score(
            values=_array(kernel).reshape(shape),
            haar_p=p_values.reshape(shape),
            chance_mean=float(kernel_null_mean(p, q, d)),
            chance_std=float(kernel_null_variance(p, q, d)) ** 0.5,
        )
    return scores


def _by_rows(table: Float[Tensor, "n m"], about: Tensor, log_tail: Callable[[Tensor, Tensor], Tensor]) -> Array:
    """p-values of a table: exp of the tail of blocks of its rows, each with what `about` says of those rows."""
    step = max(1, TAIL_PAIRS // max(1, table.shape[1]))
    starts = range(0, len(table), step)
    parts = [_array(log_tail(table[start : start + step], about[start : start + step]).exp()) for start in starts]
    return np.concatenate(parts) if parts else np.zeros(tuple(table.shape))


def composition_scores(heads: Heads, found: OverlapTables | None) -> dict[str, Score]:
    """C = ||M N||_F / (||M||_F ||N||_F) of every pair, in [0, 1], for OQ, OK, OV; NaN where a circuit is zero.

    Haar null: a random rotation between the two circuits that keeps both spectra; E[C^2] = 1/d. The chance mean and
    standard deviation of C follow from those of C^2 to second order, averaged over pairs.
    """
    if found is None:
        return {}
    d, scores = heads.d_model, {}
    a, src_energy = energy_shares(found.source), found.source.square().sum(-1)
    for pairing, overlap in found.tables.items():
        dst = found.readers[pairing[1]]
        energies = src_energy[:, None] * dst.square().sum(-1)[None, :]
        # Rounding of a pair whose factors align completely must not push a score above 1.
        squared = torch.where(energies > 0, overlap / energies, torch.nan).clamp(max=1.0)
        b = energy_shares(dst)
        variance, shape = float(rotation_variance(a, b, d).nanmean()), pair_shape(heads, pairing)
        p_values = _by_rows(squared, a, partial(_log_composition_tail, b, d))
        scores[pairing] = Score(
            values=_array(squared.sqrt()).reshape(shape),
            haar_p=p_values.reshape(shape),
            chance_mean=d**-0.5 - variance * d**1.5 / 8,
            chance_std=variance**0.5 * d**0.5 / 2,
        )
    return scores


def _log_kernel_tail(dst_rank: Tensor, d: int, kernel: Tensor, src_rank: Tensor) -> Tensor:
    return log_upper_tail(kernel, src_rank, dst_rank, d)


def _log_composition_tail(dst_shares: Tensor, d: int, squared: Tensor, src_shares: Tensor) -> Tensor:
    return log_rotation_tail(squared, src_shares, dst_shares, d)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().cpu().numpy().astype(np.float64, copy=False)
