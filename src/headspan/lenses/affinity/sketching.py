"""One pass over the weights that keeps a sketch of every head, and the estimated kernels of all composing pairs.

1. Of each block of layers: bases U, of which Phi^T U [m, d_head] is kept (`subspaces.sketched`).
2. ||Y_h Y_h'^T||_F^2 = <Y_h^T Y_h, Y_h'^T Y_h'>: the projector algorithm with d replaced by m gives all pairs.
3. Estimates are unbiased; their standard errors follow from the estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.dims import ROLES, Role
from headspan.heads import Heads
from headspan.lenses.affinity.costs import SKETCH_SHARE
from headspan.lenses.affinity.pair_tables import by_source, roles_of
from headspan.lenses.affinity.spilling import basis_blocks
from headspan.subspaces.sketch import gaussian_sketch, kernel_estimate
from headspan.subspaces.slabs import ScratchSlabs, Slabs, TensorSlabs, scratch_slabs, slab_height, slab_overlaps
from headspan.subspaces.staircase import composing_pairs


@dataclass(frozen=True)
class Estimates:
    """Estimated kernels by pairing, NaN where a pair does not compose or a head is zero; what is known of each head.

    `sizes` are ||Y_h||_F^2 / m, which is the rank on average. How far a head's is off shifts all its estimates alike.
    """

    tables: Mapping[str, Float[Tensor, "_ _"]]
    ranks: Mapping[Role, Int[Tensor, " _"]]
    sizes: Mapping[Role, Float[Tensor, " _"]]
    width: int


def estimated_kernels(
    heads: Heads, pairings: Sequence[str], *, width: int, seed: int, tolerance: float | None, memory: int
) -> Estimates:
    """Estimates of all composing pairs from sketches of `width` numbers for every direction."""
    roles: tuple[Role, ...] = tuple(role for role in ROLES if any(role in pairing for pairing in pairings))
    Phi = gaussian_sketch(heads.d_model, width, seed, heads.dtype, heads.device)
    with _sketch_space(heads, roles, width, memory) as (sketches, ranks, rest):
        start, sizes = (
            dict.fromkeys(roles, 0),
            {role: torch.zeros_like(ranks[role], dtype=heads.dtype) for role in roles},
        )
        for role, bases in basis_blocks(heads, roles, tolerance, rest):
            at = start[role]
            start[role] = at + len(bases.rank)
            ranks[role][at : start[role]] = bases.rank
            sketch = Phi.mT @ bases.basis
            sizes[role][at : start[role]] = sketch.square().sum((-2, -1)) / width
            _keep(sketches[role], at, sketch)
        del Phi
        tables = {}
        for src, own in by_source(pairings).items():
            for pairing, table in zip(own, _overlaps(heads, sketches, ranks, src, own, rest), strict=True):
                p, q = (_dimension(ranks[role], heads.dtype) for role in roles_of(pairing))
                tables[pairing] = kernel_estimate(table, p[:, None], q[None, :], width)
    return Estimates({pairing: tables[pairing] for pairing in pairings}, ranks, sizes, width)


@contextmanager
def _sketch_space(
    heads: Heads, roles: Sequence[Role], width: int, memory: int
) -> Iterator[tuple[dict[Role, Slabs], dict[Role, Tensor], int]]:
    """Room for all sketches, in memory where their share of it is small enough; ranks; and the memory left."""
    counts = {role: heads.n_layers * heads.stack.projections[role].rows.n_heads for role in roles}
    widths = {role: min(heads.stack.projections[role].rows.d_head, heads.d_model) for role in roles}
    columns, item = sum(counts[role] * widths[role] for role in roles), heads.dtype.itemsize
    size = columns * width * item
    inside = size <= SKETCH_SHARE * memory
    rest = memory - size if inside else memory
    height = slab_height(1 if inside else columns, sum(counts.values()), width, item, rest)
    with ExitStack() as files:
        sketches: dict[Role, Slabs] = {}
        for role in roles:
            shape = (counts[role], width, widths[role])
            sketches[role] = (
                TensorSlabs(torch.empty(shape, dtype=heads.dtype, device=heads.device), height)
                if inside
                else files.enter_context(scratch_slabs(shape, height, heads.dtype, heads.device))
            )
        ranks = {role: torch.zeros(counts[role], dtype=torch.int64, device=heads.device) for role in roles}
        yield sketches, ranks, rest


def _keep(slabs: Slabs, at: int, sketches: Float[Tensor, "k m p"]) -> None:
    if isinstance(slabs, ScratchSlabs):
        slabs.append(sketches)
    else:
        slabs.factors[at : at + len(sketches)] = sketches


def _dimension(rank: Int[Tensor, " n"], dtype: torch.dtype) -> Float[Tensor, " n"]:
    """Ranks as numbers, NaN for a head without a subspace."""
    return torch.where(rank > 0, rank, torch.nan).to(dtype)


def _overlaps(
    heads: Heads, sketches: Mapping[Role, Slabs], ranks: Mapping[Role, Tensor], src: Role, own: Sequence[str], rest: int
) -> tuple[Tensor, ...]:
    """||Y_h Y_h'^T||_F^2 of the composing pairs of one source role with each of its destination roles."""
    layers = {
        role: torch.arange(heads.n_layers).repeat_interleave(len(ranks[role]) // heads.n_layers) for role in sketches
    }
    readers = [roles_of(pairing)[1] for pairing in own]
    # A sketch's Gram matrix has norm about sqrt(rank) (m + rank); twice that is what rounding is held against.
    sizes = {role: 2 * rank.to(heads.dtype).sqrt() * (sketches[role].shape[1] + rank) for role, rank in ranks.items()}
    return slab_overlaps(
        sketches[src],
        [sketches[role] for role in readers],
        sizes=(sizes[src], [sizes[role] for role in readers]),
        stairs=[composing_pairs(layers[src], layers[role]) for role in readers],
        memory=rest,
    )
