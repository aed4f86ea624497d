"""Kernels and overlaps of all ordered pairs, as plain tables: what the scores are made of.

Where everything fits into memory, one pass over the weights leaves bases and factors (`circuits`), and here they are
held against each other. Where it does not, `spilling` makes the same tables through a scratch file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.dims import PAIRINGS, ROLES, Role
from headspan.lenses.affinity.circuits import Circuits
from headspan.subspaces import Subspace, concatenate, projection_kernel_table, projection_kernels, squared_overlaps
from headspan.subspaces.overlap import Algorithm
from headspan.threads import one_thread


@dataclass(frozen=True)
class KernelTables:
    """Projection kernels by pairing, [source heads, destination heads], and the rank of every head's role."""

    tables: Mapping[str, Float[Tensor, "_ _"]]
    ranks: Mapping[Role, Int[Tensor, " _"]]


@dataclass(frozen=True)
class OverlapTables:
    """||M N||_F^2 by pairing, and the singular values of the factors: of the source, and by destination role."""

    tables: Mapping[str, Float[Tensor, "_ _"]]
    source: Float[Tensor, "n p"]
    readers: Mapping[str, Float[Tensor, "_ _"]]


def roles_of(pairing: str) -> tuple[Role, Role]:
    """Source and destination role of a pairing such as OQ."""
    roles: dict[str, Role] = {"Q": "Q", "K": "K", "V": "V", "O": "O"}
    return roles[pairing[0]], roles[pairing[1]]


def by_source(pairings: Sequence[str]) -> dict[Role, list[str]]:
    """The pairings of each source role, which share the work done on their source."""
    groups: dict[Role, list[str]] = {}
    for pairing in pairings:
        groups.setdefault(roles_of(pairing)[0], []).append(pairing)
    return groups


def kernel_tables(
    circuits: Circuits, pairings: Sequence[str], memory: int, algorithm: Algorithm = "auto"
) -> KernelTables:
    """Kernels of several pairings with shared work: one symmetric table for all 16, else one table per source role."""
    ranks = {role: space.rank for role, space in circuits.spaces.items()}
    if len(pairings) == len(PAIRINGS):
        offsets, everything = _stacked(circuits, ROLES)
        table = projection_kernel_table(everything, algorithm=algorithm, memory=memory)
        return KernelTables({each: table[offsets[each[0]], offsets[each[1]]] for each in pairings}, ranks)
    tables: dict[str, Tensor] = {}
    for src_role, own in by_source(pairings).items():
        readers = [circuits.spaces[roles_of(pairing)[1]] for pairing in own]
        found = projection_kernels(circuits.spaces[src_role], readers, algorithm=algorithm, memory=memory)
        tables |= dict(zip(own, found, strict=True))
    return KernelTables({pairing: tables[pairing] for pairing in pairings}, ranks)


def _stacked(circuits: Circuits, roles: Sequence[Role]) -> tuple[dict[str, slice], Subspace]:
    """The subspaces of several roles in one list, and where in it each role stands."""
    offsets, start = {}, 0
    for role in roles:
        count = len(circuits.spaces[role].rank)
        offsets[str(role)] = slice(start, start + count)
        start += count
    return offsets, concatenate([circuits.spaces[role] for role in roles])


def overlap_tables(
    circuits: Circuits, pairings: Sequence[str], memory: int, algorithm: Algorithm = "auto"
) -> OverlapTables | None:
    """Overlaps of the circuits' factors for OQ, OK, OV; None where there is nothing to hold against each other."""
    if circuits.writer is None or not pairings:
        return None
    parts = [circuits.readers[pairing[1]] for pairing in pairings]
    found = squared_overlaps(circuits.writer, parts, algorithm=algorithm, memory=memory)
    return OverlapTables(
        tables=dict(zip(pairings, found, strict=True)),
        source=factor_values(circuits.writer),
        readers={pairing[1]: factor_values(part) for pairing, part in zip(pairings, parts, strict=True)},
    )


@one_thread()
def factor_values(factor: Float[Tensor, "n d p"]) -> Float[Tensor, "n p"]:
    """Singular values from the small Gram matrix: only the spectrum's large part matters for a law of squares."""
    energies: Tensor = torch.linalg.eigvalsh((factor.mT @ factor).double())
    return energies.clamp(min=0).sqrt()
