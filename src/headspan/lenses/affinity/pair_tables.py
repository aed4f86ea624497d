"""Kernels and overlaps of all ordered pairs, as plain tables: what the scores are made of.

Where everything fits into memory, one pass over the weights leaves bases and factors (`circuits`), and their products
are the tables. Where it does not, a scratch file stands between:

1. One pass over blocks of layers writes every head's basis (or the factors of its circuits) to a nameless file.
2. The file is read back by slabs of rows, or by blocks of heads, and multiplied with itself (`subspaces.slabs`).

Kernels and composition scores take a pass each, so that the file holds one set of factors at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.dims import PAIRINGS, ROLES, Role
from headspan.heads import HeadBlock, Heads
from headspan.heads.precision import double_bases, sampled_places
from headspan.lenses.affinity.circuits import Circuits, block_factors
from headspan.subspaces import (
    Subspace,
    concatenate,
    projection_kernel,
    projection_kernel_table,
    projection_kernels,
    squared_overlaps,
)
from headspan.subspaces.kernels import checked_kernel
from headspan.subspaces.overlap import Algorithm
from headspan.subspaces.slabs import ScratchSlabs, Slabs, scratch_slabs, slab_gram, slab_height, slab_overlaps
from headspan.threads import one_thread

BLOCK_SHARE = 8
"""Weights get this part of the budget: copies of them, and the bases made of them, take several times as much."""

Order = tuple[Int[Tensor, " pass"], int]
"""The place of each pass's layer, and the number of layers."""


@dataclass(frozen=True)
class KernelTables:
    """Projection kernels by pairing, [source heads, destination heads], and the rank of every head's role."""

    tables: Mapping[str, Float[Tensor, "_ _"]]
    ranks: Mapping[Role, Int[Tensor, " _"]]

    def by_pass(self, order: Order) -> KernelTables:
        """The tables of all passes through shared layers, out of those of the layers."""
        ranks = {role: rank[_members(order, len(rank))] for role, rank in self.ranks.items()}
        return KernelTables(_pass_tables(self.tables, order), ranks)


@dataclass(frozen=True)
class OverlapTables:
    """||M N||_F^2 by pairing, and the singular values of the factors: of the source, and by destination role."""

    tables: Mapping[str, Float[Tensor, "_ _"]]
    source: Float[Tensor, "n p"]
    readers: Mapping[str, Float[Tensor, "_ _"]]

    def by_pass(self, order: Order) -> OverlapTables:
        """The tables of all passes through shared layers, out of those of the layers."""
        source = self.source[_members(order, len(self.source))]
        readers = {role: values[_members(order, len(values))] for role, values in self.readers.items()}
        return OverlapTables(_pass_tables(self.tables, order), source, readers)


def pass_order(heads: Heads) -> Order | None:
    """The place among these heads' layers of the layer that each pass runs through; None where none is shared."""
    if not heads.stack.passes:
        return None
    places = [heads.layers.index(layer) for layer in heads.stack.passes if layer in heads.layers]
    return torch.tensor(places, device=heads.device), heads.n_layers


def _members(order: Order, count: int) -> Int[Tensor, " _"]:
    """Heads of every pass, as numbers in the list of `count` heads of the layers."""
    places, n_layers = order
    each = count // n_layers
    return (places[:, None] * each + torch.arange(each, device=places.device)).flatten()


def _pass_tables(tables: Mapping[str, Tensor], order: Order) -> dict[str, Tensor]:
    return {
        name: table[_members(order, table.shape[0])][:, _members(order, table.shape[1])]
        for name, table in tables.items()
    }


def roles_of(pairing: str) -> tuple[Role, Role]:
    """Source and destination role of a pairing such as OQ."""
    roles: dict[str, Role] = {str(role): role for role in ROLES}
    return roles[pairing[0]], roles[pairing[1]]


def roles_in(pairings: Sequence[str]) -> tuple[Role, ...]:
    """The roles that some of these pairings have on either side."""
    return tuple(role for role in ROLES if any(role in pairing for pairing in pairings))


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


def kept_kernel_tables(
    heads: Heads, pairings: Sequence[str], settings: tuple[Hashable, ...], make: Callable[[], KernelTables]
) -> KernelTables:
    """The tables that `make` returns, made once of these heads with these settings: other lenses want them too."""
    roles = roles_in(pairings)

    def tensors() -> tuple[Tensor, ...]:
        made = make()
        return *(made.tables[pairing] for pairing in pairings), *(made.ranks[role] for role in roles)

    # Results are made of these tables and belong to the user, so that everyone gets a copy.
    kept = [each.clone() for each in heads.keep(("projection kernels", *pairings, *settings), tensors)]
    tables, ranks = kept[: len(pairings)], kept[len(pairings) :]
    return KernelTables(dict(zip(pairings, tables, strict=True)), dict(zip(roles, ranks, strict=True)))


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
    """Overlaps of the circuits' factors for OQ, OK, OV; None where there is nothing to multiply."""
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


def basis_blocks(
    heads: Heads, roles: Sequence[Role], tolerance: float | None, memory: int
) -> Iterator[tuple[Role, Subspace]]:
    """Bases of what heads do through each role, as lists of heads, in order; one role of a few layers at a time."""
    for role in roles:
        for block in _head_blocks(heads, (role,), memory):
            yield role, block.spaces(role, tolerance).reshape(-1)


def _head_blocks(heads: Heads, roles: Sequence[Role], memory: int) -> Iterator[HeadBlock]:
    """Blocks of layers that leave room for what is made of them; a single layer may have half of the budget."""
    per_layer, once = heads.block_bytes(roles)
    return heads.blocks(max(memory // BLOCK_SHARE, min(memory // 2, per_layer + once)), roles)


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


def _scratch_products(
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


def scratch_kernel_tables(
    heads: Heads, pairings: Sequence[str], *, tolerance: float | None, memory: int, algorithm: str
) -> KernelTables:
    """As `kernel_tables`, through a scratch file, within `memory` bytes beside the tables themselves."""
    memory, roles = _share(memory), roles_in(pairings)
    parts: dict[Role, list[Tensor]] = {role: [] for role in roles}
    with _scratch(heads, roles, memory, most=heads.d_model) as factors:
        for role, bases in basis_blocks(heads, roles, tolerance, memory):
            factors[role].append(bases.basis)
            parts[role].append(bases.rank)
        ranks = {role: torch.cat(parts[role]) for role in roles}
        sizes = {role: rank.to(heads.dtype).sqrt() for role, rank in ranks.items()}
        tables = _scratch_products(factors, sizes, pairings, memory, algorithm)
    for pairing, table in tables.items():
        src, dst = roles_of(pairing)
        tables[pairing] = checked_kernel(table, ranks[src], ranks[dst], normalized=False)
    return KernelTables(tables, ranks)


def scratch_overlap_tables(
    heads: Heads, pairings: Sequence[str], *, delta: int, memory: int, algorithm: str
) -> OverlapTables | None:
    """As `overlap_tables`, through a scratch file, within `memory` bytes beside the tables themselves."""
    if not pairings:
        return None
    memory = _share(memory)
    values: dict[Role, list[Tensor]] = {role: [] for role in roles_in(pairings)}
    with _scratch(heads, tuple(values), memory) as factors:
        for block in _head_blocks(heads, ROLES, memory):
            made = block_factors(heads, block, delta)
            for role, parts in values.items():
                factor = made["writer" if role == "O" else role].flatten(0, 1)
                factors[role].append(factor)
                parts.append(factor_values(factor))
        found = {role: torch.cat(parts) for role, parts in values.items()}
        sizes = {role: each.pow(4).sum(-1).sqrt().to(heads.dtype) for role, each in found.items()}
        tables = _scratch_products(factors, sizes, pairings, memory, algorithm)
    return OverlapTables(tables, found["O"], {role: each for role, each in found.items() if role != "O"})


def kernel_error(heads: Heads, found: KernelTables, tolerance: float | None) -> dict[str, float | int]:
    """An upper estimate of what single precision cost any kernel, and how many pairs it rests on.

    In every pairing the pairs of sampled heads, and the strongest pair, are computed in double precision. Nothing in
    double precision itself.
    """
    if heads.dtype == torch.float64 or not found.tables:
        return {}
    single, double = [], []
    for pairing, table in found.tables.items():
        roles, width = roles_of(pairing), table.shape[1]
        best = divmod(int(table.nan_to_num(-1.0).argmax()), width)
        sampled = [sampled_places(heads, role) for role in roles]
        strongest = [[divmod(member, heads.shape(role)[1])] for role, member in zip(roles, best, strict=True)]
        for places in (sampled, strongest):
            spaces = (double_bases(heads, role, own, tolerance) for role, own in zip(roles, places, strict=True))
            double.append(projection_kernel(*spaces).flatten().cpu())
            rows, columns = (
                torch.tensor([layer * heads.shape(role)[1] + head for layer, head in own], device=table.device)
                for role, own in zip(roles, places, strict=True)
            )
            single.append(table[rows][:, columns].double().flatten().cpu())
    largest = max(float(table.nan_to_num(0.0).max()) for table in found.tables.values())
    n_pairs = sum(table.numel() for table in found.tables.values())
    return error_estimate(torch.cat(single), torch.cat(double), largest, n_pairs)


def error_estimate(
    single: Float[Tensor, " n"], double: Float[Tensor, " n"], largest: float, n_pairs: int
) -> dict[str, float | int]:
    """What to expect of the largest error among `n_pairs` kernels up to `largest`, from n of them in both precisions.

    Rounding grows with the kernel, so relative errors (of kernels below 1: errors) are taken as normal around 0:
    the largest of N of them is about rms sqrt(2 ln 2N). At least the largest error that was seen.
    """
    known = ~(single.isnan() | double.isnan())
    error = (single - double).abs()[known]
    count = int(error.numel())
    if not count:
        return {"float32_error": float("nan"), "float32_error_pairs": 0}
    rms = float((error / double[known].clamp(min=1.0)).square().mean().sqrt())
    expected = rms * math.sqrt(2 * math.log(2 * max(n_pairs, 1))) * max(largest, 1.0)
    return {"float32_error": max(expected, float(error.max())), "float32_error_pairs": count}
