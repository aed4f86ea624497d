r"""Estimated kernels of all composing pairs from a sketch of every head, and which pairs could be among the top N.

1. Of each block of layers: bases U, of which Phi^T U [m, d_head] is kept (`subspaces.sketch`).
2. ||Y_h Y_h'^T||_F^2 = <Y_h^T Y_h, Y_h'^T Y_h'>: the projector algorithm with d replaced by m gives all pairs.
   Estimates are unbiased; their standard errors follow from the estimates.
3. The N pairs of the highest kernel are a fixed set, whatever the sketch. Each of them has an estimate below
   x - z sd(x), x its kernel, with probability `failure`; by the union bound all N of all pairings stay above with
   probability 1 - (number of pairings) N failure = the confidence. That the errors of different pairs depend on each
   other through their common sketch does not matter to it.
4. The pairs with the highest estimates are computed exactly. The K-th highest of those exact kernels, tau_K, is a lower
   bound of the true K-th kernel: no statistics enter here.
5. So, with that confidence and for all K <= N at once, every pair of the top K has an estimate of at least
   min over x >= tau_K of x - z sd(x). Pairs that reach it are candidates, to be computed exactly too.
6. If they are more than `limit`, K is lowered until they are not. Random weights have no top: thousands of pairs of
   equal kernel up to the sketch's error, and K is then the number of those that stand out.

What the confidence rests on: the exact variance, bounded for the kernel at hand, and a lower tail no longer than a
normal one. The first is proven (`subspaces.sketch`), the second is simulated down to 0.2 %, not proven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.dims import Role
from headspan.heads import Heads
from headspan.lenses.affinity.costs import SKETCH_SHARE
from headspan.lenses.affinity.pair_tables import basis_blocks, by_source, roles_in, roles_of
from headspan.subspaces.sketch import gaussian_sketch, kernel_estimate, kernel_standard_error, lowest_plausible
from headspan.subspaces.slabs import ScratchSlabs, Slabs, TensorSlabs, scratch_slabs, slab_height, slab_overlaps
from headspan.subspaces.staircase import composing_pairs

Pair = tuple[int, int]
"""Source and destination, by their place in the list of all heads of their role."""


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
    roles = roles_in(pairings)
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


@dataclass(frozen=True)
class Candidates:
    """Pairs to verify, how many of the top pairs are certain to be among them, and the estimate they had to reach."""

    pairs: tuple[Pair, ...]
    certified: int
    threshold: float


def leading_pairs(table: Float[Tensor, "n m"], count: int) -> list[Pair]:
    """The pairs with the highest estimates, highest first."""
    flat = torch.nan_to_num(table.flatten(), nan=-torch.inf)
    best = torch.topk(flat, min(count, int((~table.isnan()).sum())))
    return [divmod(int(place), table.shape[1]) for place in best.indices]


@dataclass(frozen=True)
class Question:
    """One pairing's estimates and what is asked of them.

    Parameters
    ----------
    table
        Estimates, NaN for pairs that do not compose.
    exact
        Kernels that are known already, of the leading pairs at least.
    top, limit
        N, and the number of pairs that may be candidates.
    dimensions, width, failure
        Largest p and q, m, and the probability that one pair's estimate may fail with.
    """

    table: Float[Tensor, "n m"]
    exact: Mapping[Pair, float]
    top: int
    limit: int
    dimensions: tuple[int, int]
    width: int
    failure: float

    @property
    def best(self) -> list[float]:
        """The highest N kernels that are known, highest first."""
        return sorted(self.exact.values(), reverse=True)[: self.top]

    @property
    def asked(self) -> int:
        """N, or all pairs there are."""
        return min(self.top, int((~self.table.isnan()).sum()))


def candidates(question: Question) -> Candidates:
    """The pairs that may be in the top K, with K <= N as large as the limit allows."""
    leading, best = leading_pairs(question.table, question.limit + 1), question.best
    estimates = [float(question.table[pair]) for pair in leading]
    for certified in range(len(best), 0, -1):
        threshold = lowest_plausible(best[certified - 1], *question.dimensions, question.width, question.failure)
        reaching = sum(estimate >= threshold for estimate in estimates)
        if reaching <= question.limit:
            return Candidates(tuple(leading[:reaching]), certified, threshold)
    return Candidates((), 0, float("inf"))


def helpful_width(question: Question, most: int) -> int | None:
    """The least doubling of the sketch, up to `most`, that would likely leave few enough candidates for the whole top.

    Judged by the present estimates drawn together towards their mean as far as the error of unrelated pairs shrinks;
    None where even the widest would not do.
    """
    zero, mean = torch.zeros((), dtype=torch.float64), float(question.table.nanmean())
    error = float(kernel_standard_error(zero, *question.dimensions, question.width))
    width = 2 * question.width
    while width <= most:
        threshold = lowest_plausible(question.best[-1], *question.dimensions, width, question.failure)
        shrinks = float(kernel_standard_error(zero, *question.dimensions, width)) / error
        if int((question.table >= mean + (threshold - mean) / shrinks).sum()) <= question.limit:
            return width
        width *= 2
    return None
