r"""The spectrum of a table of independent normal entries with the same shape and energy: what chance gives.

For n rows of d entries with variance v, squared singular values follow the Marchenko-Pastur law: on
[v (sqrt n - sqrt d)^2, v (sqrt n + sqrt d)^2] the density is sqrt((b - x)(x - a)) / x up to a factor. Its quantiles are
taken numerically. The participation ratio is (E tr G)^2 / E tr G^2 = n d / (n + d + 1), the stable rank
n d / (sqrt n + sqrt d)^2. Removing the mean row leaves n - 1 rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

POINTS = 4096


@dataclass(frozen=True)
class RandomTable:
    """What a random table of this shape has, with the energy of the real one."""

    singular_values: Float[np.ndarray, " rank"]
    participation_ratio: float
    stable_rank: float
    rank_90: int
    rank_99: int


def random_table(n: int, d: int, energy: float) -> RandomTable:
    """Expected spectrum and effective ranks; NaN and 0 where there are no rows."""
    rank = min(n, d)
    if rank == 0:
        return RandomTable(np.zeros(0), float("nan"), float("nan"), 0, 0)
    squares = _quantiles(n, d, rank)
    shares = np.cumsum(squares) / squares.sum()
    return RandomTable(
        singular_values=np.sqrt(squares * energy / squares.sum()),
        participation_ratio=n * d / (n + d + 1),
        stable_rank=n * d / (np.sqrt(n) + np.sqrt(d)) ** 2,
        rank_90=int(np.searchsorted(shares, 0.9) + 1),
        rank_99=int(np.searchsorted(shares, 0.99) + 1),
    )


def _quantiles(n: int, d: int, rank: int) -> Float[np.ndarray, " rank"]:
    """The law's quantiles at the middles of `rank` equal parts, descending.

    x = middle - half cos(t) turns the density into one without singular ends, half^2 sin(t)^2 / x.
    """
    middle, half = float(n + d), 2.0 * np.sqrt(n * d)
    t = (np.arange(POINTS) + 0.5) * np.pi / POINTS
    x = middle - half * np.cos(t)
    cumulative = np.cumsum(np.sin(t) ** 2 / x)
    cumulative = (cumulative - 0.5 * cumulative[0]) / cumulative[-1]
    quantiles: np.ndarray = np.interp((np.arange(rank) + 0.5) / rank, cumulative, x)[::-1].copy()
    return quantiles
