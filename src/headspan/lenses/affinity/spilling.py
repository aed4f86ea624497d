"""The tables of all pairs where bases and factors do not fit into memory: through a scratch file.

1. One pass over blocks of layers writes every head's basis (or the factors of its circuits) to a nameless file.
2. The file is read back by slabs of rows, or by blocks of heads, and held against itself (`subspaces.streamed`).

Kernels and composition scores take a pass each, so that the file holds one set of factors at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import ROLES, Role
from headspan.heads import HeadBlock, Heads
from headspan.lenses.affinity.circuits import block_factors
from headspan.lenses.affinity.pair_tables import (
    KernelTables,
    OverlapTables,
    by_source,
    factor_values,
    roles_of,
)
from headspan.subspaces import Subspace, orthonormal_basis
from headspan.subspaces.kernels import checked_kernel
from headspan.subspaces.slabs import ScratchSlabs, Slabs, scratch_slabs, slab_gram, slab_height, slab_overlaps

BLOCK_SHARE = 8
"""Weights get this part of the budget: copies of them, and the bases made of them, take several times as much."""


def head_blocks(heads: Heads, roles: Sequence[Role], memory: int) -> Iterator[HeadBlock]:
    """Blocks of layers that leave room for what is made of them; a single layer may have half of the budget."""
    per_layer, once = heads.block_bytes(roles)
    return heads.blocks(max(memory // BLOCK_SHARE, min(memory // 2, per_layer + once)), roles)


def basis_blocks(
    heads: Heads, roles: Sequence[Role], tolerance: float | None, memory: int
) -> Iterator[tuple[Role, Subspace]]:
    """Bases of what heads do through each role, as lists of heads, in order; one role of a few layers at a time."""
    for role in roles:
        for block in head_blocks(heads, (role,), memory):
            W = block.weight(role)
            yield role, orthonormal_basis(W.mT if role == "O" else W, tolerance).reshape(-1)


@contextmanager
def _scratch(
    heads: Heads, roles: Sequence[Role], memory: int, most: int | None = None
) -> Iterator[dict[Role, ScratchSlabs]]:
    """Scratch space for one factor per head of every role, as wide as the head but no wider than `most`."""
    shapes: dict[Role, tuple[int, int, int]] = {}
    for role in roles:
        rows = heads.stack.projections[role].rows
        width = rows.d_head if most is None else min(rows.d_head, most)
        shapes[role] = (heads.n_layers * rows.n_heads, heads.d_model, width)
    columns, members = sum(n * p for n, _, p in shapes.values()), sum(n for n, _, _ in shapes.values())
    height = slab_height(columns, members, heads.d_model, heads.dtype.itemsize, memory)
    with ExitStack() as files:
        yield {
            role: files.enter_context(scratch_slabs(shape, height, heads.dtype, heads.device))
            for role, shape in shapes.items()
        }


def _share(memory: int) -> int:
    """What is planned with: the allocator keeps pieces of what was freed, and later arrays come on top of them."""
    return memory * 2 // 3


def _tables(
    factors: Mapping[Role, Slabs],
    sizes: Mapping[Role, Float[Tensor, " _"]],
    pairings: Sequence[str],
    memory: int,
    algorithm: str,
) -> dict[str, Tensor]:
    tables: dict[str, Tensor] = {}
    for src, own in by_source(pairings).items():
        readers = [roles_of(pairing)[1] for pairing in own]
        if algorithm == "gram":
            found = tuple(slab_gram(factors[src], factors[dst], memory) for dst in readers)
        else:
            others = [factors[dst] for dst in readers]
            room = (sizes[src], [sizes[dst] for dst in readers])
            found = slab_overlaps(factors[src], others, sizes=room, memory=memory)
        tables |= dict(zip(own, found, strict=True))
    return {pairing: tables[pairing] for pairing in pairings}


def spilled_kernel_tables(
    heads: Heads, pairings: Sequence[str], *, tolerance: float | None, memory: int, algorithm: str
) -> KernelTables:
    """As `pair_tables.kernel_tables`, within `memory` bytes beside the tables themselves."""
    memory = _share(memory)
    roles: tuple[Role, ...] = tuple(role for role in ROLES if any(role in pairing for pairing in pairings))
    parts: dict[Role, list[Tensor]] = {role: [] for role in roles}
    with _scratch(heads, roles, memory, most=heads.d_model) as factors:
        for role, bases in basis_blocks(heads, roles, tolerance, memory):
            factors[role].append(bases.basis)
            parts[role].append(bases.rank)
        ranks = {role: torch.cat(parts[role]) for role in roles}
        sizes = {role: rank.to(heads.dtype).sqrt() for role, rank in ranks.items()}
        tables = _tables(factors, sizes, pairings, memory, algorithm)
    for pairing, table in tables.items():
        src, dst = roles_of(pairing)
        tables[pairing] = checked_kernel(table, ranks[src], ranks[dst], normalized=False)
    return KernelTables(tables, ranks)


def spilled_overlap_tables(
    heads: Heads, pairings: Sequence[str], *, delta: int, memory: int, algorithm: str
) -> OverlapTables | None:
    """As `pair_tables.overlap_tables`, within `memory` bytes beside the tables themselves."""
    if not pairings:
        return None
    memory = _share(memory)
    values: dict[Role, list[Tensor]] = {role: [] for role in ROLES if any(role in pairing for pairing in pairings)}
    with _scratch(heads, tuple(values), memory) as factors:
        for block in head_blocks(heads, ROLES, memory):
            made = block_factors(heads, block, delta)
            for role, parts in values.items():
                factor = made["writer" if role == "O" else role].flatten(0, 1)
                factors[role].append(factor)
                parts.append(factor_values(factor))
        found = {role: torch.cat(parts) for role, parts in values.items()}
        sizes = {role: each.pow(4).sum(-1).sqrt().to(heads.dtype) for role, each in found.items()}
        tables = _tables(factors, sizes, pairings, memory, algorithm)
    return OverlapTables(tables, found["O"], {role: each for role, each in found.items() if role != "O"})
