"""What random matrices of one shape give: expected singular values, distribution, edge, and draws for everything else.

The null is independent normal entries of one standard deviation; for a product W_QK or W_OV, two independent such
factors. Plain matrices have the Marchenko-Pastur law. For products the law is the average of draws, and the edge that
of the free product. Whatever else is asked of a spectrum (its entropy, its distance from the law with a fitted scale,
...) is asked of draws in the same way, so that its chance value needs no formula and holds at any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float

from headspan.statistics import (
    TW_MEAN,
    TW_SD,
    mp_cdf,
    mp_edges,
    mp_typical,
    product_edge,
    random_product_singular_values,
    random_singular_values,
    tw_center_scale,
)

FEWEST = 4
"""With fewer singular values there is no middle half to take a scale from."""
DRAWS = ((128, 256), (512, 64), (1024, 32))
MANY, FEW_DRAWS = 1024, 16


@dataclass(frozen=True)
class Law:
    """Random m x n matrices with entries of standard deviation 1, or products of m x inner and inner x n ones.

    `centre` and `scale` turn the largest squared singular value, over the squared fitted scale, into a Tracy-Widom
    variable; NaN where no scale can be fitted.
    """

    m: int
    n: int
    inner: int | None
    typical: Float[np.ndarray, " k"]
    drawn: Float[np.ndarray, "draws k"]
    edge: float
    centre: float
    scale: float

    @property
    def mean_energy(self) -> int:
        """The expected sum of squared singular values."""
        return self.m * self.n * (self.inner or 1)

    def cdf(self, values: Float[np.ndarray, "*batch k"]) -> Float[np.ndarray, "*batch k"]:
        """The share of the law up to each value; uniform by chance."""
        if self.inner is None:
            return mp_cdf(torch.as_tensor(values.copy()), self.m, self.n).numpy()
        pooled = np.sort(self.drawn, axis=None)
        places = (np.arange(len(pooled)) + 0.5) / len(pooled)
        share: np.ndarray = np.interp(values, pooled, places, left=0.0, right=1.0)
        return share


def bulk_scale(values: Float[np.ndarray, "*batch k"], typical: Float[np.ndarray, " k"]) -> Float[np.ndarray, "*batch"]:
    """The standard deviation of entries that the middle half of a spectrum speaks for; NaN for fewer than 4 values.

    The ratio of the sums of observed and typical values between the quartiles. Large outliers and a handful of tiny
    values do not move it, and in random matrices the middle hardly fluctuates: by 0.4 % for 64 x 768.
    """
    k = len(typical)
    if k < FEWEST:
        return np.full(values.shape[:-1], np.nan)
    middle = slice(k // 4, k - k // 4)
    return np.asarray(values[..., middle].sum(-1) / typical[middle].sum())


@lru_cache(maxsize=256)
def law_of(m: int, n: int, inner: int | None, seed: int) -> Law:
    """The law of a shape; draws are made once per shape and seed."""
    k = min(m, n) if inner is None else min(m, n, inner)
    draws = next((count for most, count in DRAWS if k <= most), FEW_DRAWS)
    if inner is None:
        drawn = random_singular_values(m, n, draws, seed).numpy()
        typical, edge = mp_typical(m, n).numpy(), mp_edges(m, n)[1]
    else:
        drawn = random_product_singular_values(m, n, inner, draws, seed).numpy()
        typical, edge = drawn.mean(0), product_edge(m, n, inner)
    centre, scale = _largest(m, n, inner, drawn, bulk_scale(drawn, typical))
    return Law(m, n, inner, typical, drawn, edge, centre, scale)


def _largest(
    m: int, n: int, inner: int | None, drawn: Float[np.ndarray, "draws k"], fitted: Float[np.ndarray, " draws"]
) -> tuple[float, float]:
    """Centre and scale of (s_1 / fitted scale)^2.

    Plain matrices: those of Ma (2012), made wider by what the fitted scale fluctuates. Products: from the mean and the
    spread of draws, since their edge has the same limit law up to these two numbers.
    """
    if drawn.shape[-1] < FEWEST:
        return float("nan"), float("nan")
    if inner is None:
        centre, scale = tw_center_scale(m, n)
        wider = fitted**-2.0
        return centre * float(wider.mean()), float(np.hypot(scale, centre * wider.std() / TW_SD))
    square = (drawn[:, 0] / fitted) ** 2
    scale = float(square.std()) / TW_SD
    return float(square.mean()) - TW_MEAN * scale, scale
