"""The two affinity scores of every ordered pair of heads, each with its law under the `haar` null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import PAIRINGS, ROLES, Role
from headspan.heads import Heads
from headspan.lenses.affinity.circuits import Circuits
from headspan.lenses.affinity.nulls import Array
from headspan.subspaces import (
    Subspace,
    chance_mean,
    chance_variance,
    concatenated,
    log_upper_tail,
    projection_kernel_table,
    projection_kernels,
    squared_overlaps,
)
from headspan.subspaces.rotation import energy_shares, log_rotation_tail, rotation_variance
from headspan.threads import one_thread


@dataclass(frozen=True)
class Score:
    """One score of all ordered pairs [src_layer, src_head, dst_layer, dst_head], whether they compose or not."""

    values: Array
    haar_p: Array
    chance_mean: float
    chance_std: float


def roles_of(pairing: str) -> tuple[Role, Role]:
    """Source and destination role of a pairing such as OQ."""
    roles: dict[str, Role] = {"Q": "Q", "K": "K", "V": "V", "O": "O"}
    return roles[pairing[0]], roles[pairing[1]]


def pair_shape(heads: Heads, pairing: str) -> tuple[int, int, int, int]:
    """Lengths of the four axes of a pairing's scores."""
    src, dst = (heads.shape(role) for role in roles_of(pairing))
    return (*src[:2], *dst[:2])


def kernel_scores(heads: Heads, circuits: Circuits, pairings: Sequence[str], memory: int) -> dict[str, Score]:
    """The projection kernel ||U^T V||_F^2 of every pair, in [0, min(p, q)], for each pairing.

    Haar null: two independent subspaces in general position; mean pq/d. p-values use each pair's true dimensions, the
    two chance numbers those of heads of full rank.
    """
    scores = {}
    for pairing, kernel in _kernel_tables(circuits, pairings, memory).items():
        src, dst = (circuits.spaces[role] for role in roles_of(pairing))
        p_values = log_upper_tail(kernel, src.rank[:, None], dst.rank[None, :], src.ambient).exp()
        shape = pair_shape(heads, pairing)
        scores[pairing] = Score(
            values=_array(kernel).reshape(shape),
            haar_p=_array(p_values).reshape(shape),
            chance_mean=float(chance_mean(src.width, dst.width, src.ambient)),
            chance_std=float(chance_variance(src.width, dst.width, src.ambient)) ** 0.5,
        )
    return scores


def _kernel_tables(circuits: Circuits, pairings: Sequence[str], memory: int) -> dict[str, Tensor]:
    """Kernels of several pairings with shared work: one symmetric table for all 16, else one table per source role."""
    if len(pairings) == len(PAIRINGS):
        offsets, everything = _stacked(circuits, ROLES)
        table = projection_kernel_table(everything, memory=memory)
        return {pairing: table[offsets[pairing[0]], offsets[pairing[1]]] for pairing in pairings}
    tables: dict[str, Tensor] = {}
    for src_role in dict.fromkeys(roles_of(pairing)[0] for pairing in pairings):
        own = [pairing for pairing in pairings if pairing[0] == src_role]
        readers = [circuits.spaces[roles_of(pairing)[1]] for pairing in own]
        found = projection_kernels(circuits.spaces[src_role], readers, memory=memory)
        tables |= dict(zip(own, found, strict=True))
    return {pairing: tables[pairing] for pairing in pairings}


def _stacked(circuits: Circuits, roles: Sequence[Role]) -> tuple[dict[str, slice], Subspace]:
    """The subspaces of several roles in one list, and where in it each role stands."""
    offsets, start = {}, 0
    for role in roles:
        count = len(circuits.spaces[role].rank)
        offsets[str(role)] = slice(start, start + count)
        start += count
    return offsets, concatenated([circuits.spaces[role] for role in roles])


def composition_scores(heads: Heads, circuits: Circuits, pairings: Sequence[str], memory: int) -> dict[str, Score]:
    """C = ||M N||_F / (||M||_F ||N||_F) of every pair, in [0, 1], for OQ, OK, OV; NaN where a circuit is zero.

    Haar null: a random rotation between the two circuits that keeps both spectra; E[C^2] = 1/d. The chance mean and
    standard deviation of C follow from those of C^2 to second order, averaged over pairs.
    """
    if circuits.writer is None or not pairings:
        return {}
    src, d = circuits.writer, heads.d_model
    parts = [circuits.readers[pairing[1]] for pairing in pairings]
    overlaps = squared_overlaps(src, parts, memory=memory)
    a, src_norm = energy_shares(_singular_values(src)), torch.linalg.matrix_norm(src)
    scores = {}
    for pairing, dst, overlap in zip(pairings, parts, overlaps, strict=True):
        norms = src_norm[:, None] * torch.linalg.matrix_norm(dst)[None, :]
        # Rounding of a pair whose factors align completely must not push a score above 1.
        squared = torch.where(norms > 0, overlap / norms.square(), torch.nan).clamp(max=1.0)
        b = energy_shares(_singular_values(dst))
        variance, shape = float(rotation_variance(a, b, d).nanmean()), pair_shape(heads, pairing)
        scores[pairing] = Score(
            values=_array(squared.sqrt()).reshape(shape),
            haar_p=_array(log_rotation_tail(squared, a, b, d).exp()).reshape(shape),
            chance_mean=d**-0.5 - variance * d**1.5 / 8,
            chance_std=variance**0.5 * d**0.5 / 2,
        )
    return scores


@one_thread()
def _singular_values(factor: Float[Tensor, "n d p"]) -> Float[Tensor, "n p"]:
    """From the small Gram matrix: only the spectrum's large part matters for a law of squares."""
    energies: Tensor = torch.linalg.eigvalsh((factor.mT @ factor).double())
    return energies.clamp(min=0).sqrt()


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().cpu().numpy().astype(np.float64, copy=False)
