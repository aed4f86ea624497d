r"""Which pairs could be among the top N, given estimates: all others are left out with a stated confidence.

1. The N pairs of the highest kernel are a fixed set, whatever the sketch. Each of them has an estimate below
   x - z sd(x), x its kernel, with probability `failure`; by the union bound all N of all pairings stay above with
   probability 1 - (number of pairings) N failure = the confidence. That the errors of different pairs depend on each
   other through their common sketch does not matter to it.
2. The pairs with the highest estimates are computed exactly. The K-th highest of those exact kernels, tau_K, is a lower
   bound of the true K-th kernel: no statistics enter here.
3. So, with that confidence and for all K <= N at once, every pair of the top K has an estimate of at least
   min over x >= tau_K of x - z sd(x). Pairs that reach it are candidates, to be computed exactly too.
4. If they are more than `limit`, K is lowered until they are not. Random weights have no top: thousands of pairs of
   equal kernel up to the sketch's error, and K is then the number of those that stand out.

What the confidence rests on: the exact variance, bounded for the kernel at hand, and a lower tail no longer than a
normal one. The first is proven (`subspaces.sketched`), the second is simulated down to 0.2 %, not proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lenses.affinity.verifying import Pair
from headspan.subspaces.sketch import kernel_standard_error, lowest_plausible


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
