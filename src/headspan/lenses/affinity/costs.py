r"""What each algorithm of affinity costs, counted before anything is computed, and the one that is chosen.

For n sources of width p, destinations of width q in R^d, N ordered pairs, c columns of all factors together:

    gram       2 d p q N                       bases against bases
    projector  d^2 N + d^2 c                   projectors formed once, then inner products of their halves
    sketch     2 m d c + m^2 N / 2 + m^2 c     columns reduced to m numbers, composing pairs only; a few verified after

and 4 d (p or q)^2 for each basis in all of them. Operations are multiplications and additions. Factors that take more
than half of the memory budget go to a scratch file. The exact algorithm with fewer operations is chosen, forming
projectors counted double because small products run at half the speed of large ones; the sketch, which gives the top
pairs and not all of them, is chosen only where the exact ones need more than EXACT_OPERATIONS or more disk than there
is, or where it is asked for.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from headspan.dims import COMPOSING, ROLES
from headspan.errors import LongWork, MemoryBudgetError
from headspan.heads import Heads
from headspan.heads.memory import machine_memory
from headspan.lenses.affinity.pair_tables import by_source, roles_of

COUNTED = ("gram", "projector", "sketch")
EXACT_OPERATIONS = 4e14
"""About two hours of one core: above it, exact tables of all pairs are made only if they are asked for."""
LONG_OPERATIONS = 1e12
"""About a minute of one core: above it, the time is estimated aloud."""
RESULT_ARRAYS = 26
"""Arrays as long as the pairs that a complete result holds: normalized kernels, and for two scores forward and reverse
values and five numbers under two nulls; and one pairing's nulls while they are made."""
FORMING = 2.0
SKETCH_SHARE = 0.6
"""Sketches stay in memory where they take at most this share of the budget."""


@dataclass(frozen=True)
class Cost:
    """One algorithm: operations, bytes in memory at a time, and bytes of the scratch file (0: none is needed)."""

    algorithm: str
    operations: float
    weighed: float
    """Operations as the choice counts them, small products more dearly."""
    memory: int
    scratch: int

    def seconds(self, speed: float) -> float:
        """At so many operations a second of a large product."""
        return self.weighed / speed


@dataclass(frozen=True)
class Plan:
    """Every algorithm's cost, and the one chosen with the reason."""

    costs: tuple[Cost, ...]
    chosen: Cost
    reason: str
    spills: bool


def sketch_width(heads: Heads) -> int:
    """m to begin with: four times d_head, where unrelated heads of equal width are estimated to 0.43."""
    return min(heads.d_model, 4 * max(heads.d_head, heads.d_value))


def affinity_plan(heads: Heads, pairings: Sequence[str], metrics: int, memory: int, algorithm: str = "auto") -> Plan:
    """The costs of scoring `pairings` under `metrics` metrics, and the choice.

    Parameters
    ----------
    heads
        In the precision that is computed in.
    pairings, metrics, memory
        What is wanted, and the budget in bytes.
    algorithm
        "auto", "exact" (the cheaper of the exact ones), or the one to take whatever it costs.
    """
    costs = {name: _cost(heads, pairings, metrics, memory, name) for name in COUNTED}
    exact = min((costs["gram"], costs["projector"]), key=lambda cost: cost.weighed)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    sketchable = all(pairing in COMPOSING for pairing in pairings)
    if algorithm in costs:
        chosen, reason = costs[algorithm], "asked for"
    elif algorithm == "auto" and sketchable and exact.operations > EXACT_OPERATIONS:
        chosen, reason = costs["sketch"], f"all pairs exactly need more than {EXACT_OPERATIONS:.0e} operations"
    elif algorithm == "auto" and sketchable and exact.memory > max(memory, machine_memory()):
        chosen, reason = costs["sketch"], f"all pairs exactly need {exact.memory / 1e9:,.0f} GB of memory"
    elif algorithm == "auto" and sketchable and exact.scratch > free:
        chosen, reason = costs["sketch"], f"the scratch file would need {exact.scratch:,} bytes of {free:,}"
    else:
        chosen, reason = exact, "all pairs exactly, by the fewer operations"
    return Plan(tuple(costs.values()), chosen, reason, spills=chosen.scratch > 0)


def check_affordable(plan: Plan, memory: int, dtype: torch.dtype) -> None:
    """Refuse what this machine cannot hold, and say how long it takes where that is long; before anything is read."""
    cost, most = plan.chosen, max(memory, machine_memory())
    if cost.memory > most:
        raise MemoryBudgetError(
            f"affinity by {cost.algorithm} needs about {cost.memory / 1e9:,.0f} GB of memory, and there are "
            f"{most / 1e9:,.0f}; ask for fewer pairings, or for fewer layers"
        )
    if cost.operations > LONG_OPERATIONS:
        minutes = cost.seconds(product_speed(dtype)) / 60
        warnings.warn(
            f"affinity by {cost.algorithm} takes about {minutes:,.0f} minutes on this machine "
            f"({cost.operations:.1g} operations, {cost.memory / 1e9:,.1f} GB of memory); --explain compares algorithms",
            LongWork,
            stacklevel=3,
        )


def working_budget(heads: Heads, pairings: Sequence[str], memory: int) -> int:
    """What of a budget is left for the work beside the result itself; at least half of it."""
    pairs = sum(prod(n for role in roles_of(pairing) for n in heads.shape(role)[:2]) for pairing in pairings)
    return max(memory // 2, memory - 8 * RESULT_ARRAYS * pairs)


def _cost(heads: Heads, pairings: Sequence[str], metrics: int, memory: int, algorithm: str) -> Cost:
    d, item, m = heads.d_model, heads.dtype.itemsize, sketch_width(heads)
    metrics = 1 if algorithm == "sketch" else metrics  # it scores the kernel alone
    members = {role: heads.shape(role)[0] * heads.shape(role)[1] for pair in pairings for role in roles_of(pair)}
    widths = {role: min(heads.shape(role)[2:]) for role in members}
    operations = weighed = float(sum(4 * d * members[role] * widths[role] ** 2 for role in members)) * metrics
    pairs = 0
    for src, own in by_source(pairings).items():
        readers = [roles_of(pairing)[1] for pairing in own]
        products = sum(members[src] * members[dst] * widths[src] * widths[dst] for dst in readers)
        here = sum(members[src] * members[dst] for dst in readers)
        columns = members[src] * widths[src] + sum(members[dst] * widths[dst] for dst in readers)
        large, small = {
            "gram": (2 * d * products, 0),
            "projector": (d**2 * here, d**2 * columns),
            "sketch": (2 * m * d * columns + m**2 * here / 2, m**2 * columns),
        }[algorithm]
        operations += metrics * (large + small)
        weighed += metrics * (large + FORMING * small)
        pairs += here
    held = sum(members[role] * widths[role] for role in members) * (m if algorithm == "sketch" else d) * item
    # In memory, bases stand beside the factors of all four roles; a scratch file holds one set at a time.
    everyone = sum(prod(heads.shape(role)) for role in ROLES) * item
    needed = held if metrics == 1 else held + everyone
    spilled = needed > (SKETCH_SHARE if algorithm == "sketch" else 0.5) * memory
    result = pairs * (item if algorithm == "sketch" else 8 * RESULT_ARRAYS)
    return Cost(algorithm, operations, weighed, result + (memory if spilled else needed), held if spilled else 0)


def product_speed(dtype: torch.dtype, side: int = 1024) -> float:
    """Operations a second of one large product, timed now."""
    M = torch.randn(side, side, generator=torch.Generator().manual_seed(0), dtype=dtype)
    M @ M
    start = time.perf_counter()
    M @ M
    return 2 * side**3 / max(time.perf_counter() - start, 1e-9)
