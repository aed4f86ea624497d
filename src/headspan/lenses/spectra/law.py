"""Random matrices of one shape, and numbers that summarize a spectrum: asked of a model's matrices and of draws alike.

The null is independent normal entries of one standard deviation; for a product W_QK or W_OV, two independent such
factors. Plain matrices have the Marchenko-Pastur law. For products the law is the average of draws, and the edge that
of the free product. Everything else (entropy, distance from the law with a fitted scale, exponent of a power law, ...)
is computed from draws in the same way as from the model, so that its expected value needs no formula, holds at any
size, and the fitted scale is fitted in both.
"""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO

import numpy as np
import torch
from jaxtyping import Float
from scipy import special  # type: ignore[import-untyped,unused-ignore]

from headspan.errors import HeadspanError
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
    tw_log_upper_tail,
)

FEWEST = 4
"""With fewer singular values there is no middle half to take a scale from."""
DRAWS = ((128, 256), (512, 64), (1024, 32))
FEW_DRAWS = 16
LEVEL = 0.01
"""A singular value is a spike if even the largest of a random matrix reaches it with a probability below this."""
LARGEST_SMALL, LARGEST_DRAWS = 32, ((32, 16_000), (64, 4000), (128, 1000))
"""Singular values up to which a plain matrix is small; draws of the largest one, by the number of singular values."""
POWERS, TW_SKEWNESS = (0.05, 1.0), 0.29346452408
TAIL_DRAWS = 4
POWER_LAW = ("power_law_alpha", "power_law_xmin", "power_law_ks", "power_law_values", "power_law_over_lognormal")
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Law:
    """Random m x n matrices with entries of standard deviation 1, or products of m x inner and inner x n ones.

    `center` and `scale` turn the largest squared singular value, over the squared fitted scale and to the `power`, into
    a Tracy-Widom variable; NaN where no scale can be fitted.
    """

    m: int
    n: int
    inner: int | None
    typical: Float[np.ndarray, " k"]
    drawn: Float[np.ndarray, "draws k"]
    edge: float
    center: float
    scale: float
    power: float

    @property
    def mean_energy(self) -> int:
        """The expected sum of squared singular values."""
        return self.m * self.n * (self.inner or 1)

    def cdf(self, values: Float[np.ndarray, "*batch k"]) -> Float[np.ndarray, "*batch k"]:
        """The share of the law up to each value; uniform under the null."""
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
    return Law(m, n, inner, typical, drawn, edge, *_largest(m, n, inner, drawn, typical, seed))


def _largest(
    m: int,
    n: int,
    inner: int | None,
    drawn: Float[np.ndarray, "draws k"],
    typical: Float[np.ndarray, " k"],
    seed: int,
) -> tuple[float, float, float]:
    """Center, scale and power of (s_1 / fitted scale)^2.

    Large plain matrices: those of Ma (2012), made wider by what the fitted scale fluctuates. Small ones and products:
    from more draws, since a small matrix's largest value is skewer than its limit law. The power gives the draws the
    limit's skewness, center and scale its mean and spread. Of products too large for that only mean and spread.
    """
    k = len(typical)
    if k < FEWEST:
        return (float("nan"),) * 3
    if inner is None and k > LARGEST_SMALL:
        center, scale = tw_center_scale(m, n)
        wider = bulk_scale(drawn, typical) ** -2.0
        return center * float(wider.mean()), float(np.hypot(scale, center * wider.std() / TW_SD)), 1.0
    count = next((count for most, count in LARGEST_DRAWS if k <= most), 0)
    if count and inner is None:
        drawn = random_singular_values(m, n, count, seed + 1).numpy()
    elif count and inner is not None:
        drawn = random_product_singular_values(m, n, inner, count, seed + 1).numpy()
    square = (drawn[:, 0] / bulk_scale(drawn, typical)) ** 2
    power = _power_of_skewness(square) if count else 1.0
    scale = float((square**power).std()) / TW_SD
    return float((square**power).mean()) - TW_MEAN * scale, scale, power


def _power_of_skewness(sample: Float[np.ndarray, " draws"]) -> float:
    """The power, in POWERS, at which a positive sample has the skewness of the Tracy-Widom law."""
    low, high = POWERS
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if _skewness(sample**middle) < TW_SKEWNESS else (low, middle)
    return low


def _skewness(sample: Float[np.ndarray, " draws"]) -> float:
    """Third central moment over the 3/2 power of the second; 0 for a standard normal one.

    As `scipy.stats.skew`, which takes half a second to import.
    """
    centered = sample - sample.mean()
    return float((centered**3).mean() / (centered**2).mean() ** 1.5)


def shape_statistics(values: Float[np.ndarray, "*batch k"], tolerance: float) -> Arrays:
    """What does not depend on a matrix's scale; NaN for a zero matrix.

    `largest_share` s_1^2 / sum s^2 in [1/k, 1]; `stable_rank` its inverse; `entropy` of s^2 / sum s^2, in [0, log k];
    `effective_rank` the exponential of the entropy of s / sum s, in [1, k] (Roy and Vetterli 2007); `log_condition`
    log(s_1 / s_k), infinite if s_k is at most `tolerance` times s_1.
    """
    first, last = values[..., 0], values[..., -1]
    known = np.where(first > 0, first, np.nan)
    relative = values / known[..., None]
    power = relative**2 / (relative**2).sum(-1, keepdims=True)
    weight = relative / relative.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        condition = -np.log(np.where(last > tolerance * first, last, 0.0) / known)
    return {
        "largest_share": power[..., 0],
        "stable_rank": 1 / power[..., 0],
        "effective_rank": np.exp(special.entr(weight).sum(-1)),
        "entropy": special.entr(power).sum(-1),
        "log_condition": condition,
    }


def law_statistics(values: Float[np.ndarray, "*batch k"], law: Law, sigma: Float[np.ndarray, "*batch"]) -> Arrays:
    """How a spectrum departs from the law of entries of standard deviation sigma; NaN where sigma is 0 or unknown.

    `ks`, the Kolmogorov-Smirnov distance sup |F_observed - F|, in [0, 1]; `above`, the share of singular values above
    their quantile, the i-th largest against the i-th largest expected, in [0, 1], about 1/2 under the null.
    """
    k = values.shape[-1]
    unit = values / np.where(sigma > 0, sigma, np.nan)[..., None]
    share = law.cdf(unit[..., ::-1])
    steps = np.arange(k + 1) / k
    distance = np.maximum(steps[1:] - share, share - steps[:-1]).max(-1)
    above = (unit > law.typical).mean(-1)
    undefined = np.isnan(unit[..., 0])
    return {"ks": np.where(undefined, np.nan, distance), "above": np.where(undefined, np.nan, above)}


def spike_log_p(
    values: Float[np.ndarray, "*batch k"], law: Law, sigma: Float[np.ndarray, "*batch"]
) -> Float[np.ndarray, "*batch k"]:
    """log of the probability that the largest singular value of a random matrix reaches each of these.

    In [-inf, 0]; under the null the first is the log of a uniform variable and the others lie above it. -inf where the
    fitted sigma is 0 and the value is not; NaN where no sigma can be fitted, or both are 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        square = (values / sigma[..., None]) ** (2 * law.power)
    return tw_log_upper_tail(torch.as_tensor((square - law.center) / law.scale)).numpy()


def spike_count(log_p: Float[np.ndarray, "*batch k"]) -> Float[np.ndarray, "*batch"]:
    """How many values exceed what the largest of a random matrix reaches; LEVEL under the null, NaN where unknown."""
    count = (log_p < np.log(LEVEL)).sum(-1).astype(float)
    return np.where(np.isnan(log_p[..., 0]), np.nan, count)


@lru_cache(maxsize=256)
def null_moments(m: int, n: int, inner: int | None, seed: int) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of every statistic over draws of a shape's law."""
    law = law_of(m, n, inner, seed)
    ones, fitted = np.ones(len(law.drawn)), bulk_scale(law.drawn, law.typical)
    arrays = shape_statistics(law.drawn, 0.0)
    arrays |= law_statistics(law.drawn, law, fitted)
    arrays |= {f"{name}_init": array for name, array in law_statistics(law.drawn, law, ones).items()}
    arrays["spikes"] = spike_count(spike_log_p(law.drawn, law, fitted))
    arrays["energy_ratio"] = (law.drawn**2).sum(-1) / law.mean_energy
    moments = {name: (float(array.mean()), float(array.std(ddof=1))) for name, array in arrays.items()}
    # Known without draws.
    moments["energy_ratio"] = (1.0, moments["energy_ratio"][1])
    return moments


def require_powerlaw() -> None:
    """Refuse before any work is done if the package is not there."""
    if importlib.util.find_spec("powerlaw") is None:
        raise HeadspanError("power-law fits need the package powerlaw: pip install 'headspan[powerlaw]'")


def power_law_fits(values: Float[np.ndarray, "*batch k"], law: Law) -> tuple[Arrays, dict[str, float]]:
    """A power law x^-alpha fitted to the tail of the squared singular values, and its means over random matrices.

    alpha > 1, x_min, the Kolmogorov-Smirnov distance in [0, 1], how many values lie beyond x_min, and the
    log-likelihood ratio against a log-normal tail (above 0 for the power law); NaN where nothing can be fitted. A
    straight line fits almost any tail, so alpha alone says little (Clauset, Shalizi and Newman 2009; Martin and Mahoney
    2021 read it as a measure of training).
    """
    fits = np.array([tail_fit(row) for row in values.reshape(-1, values.shape[-1])])
    random = np.array([tail_fit(row) for row in law.drawn[:TAIL_DRAWS]])
    found = {name: fits[:, place].reshape(values.shape[:-1]) for place, name in enumerate(POWER_LAW)}
    return found, {name: float(random[:, place].mean()) for place, name in enumerate(POWER_LAW)}


def tail_fit(values: Float[np.ndarray, " k"]) -> tuple[float, ...]:
    """The five numbers of `power_law_fits` for one matrix."""
    import powerlaw

    squares = values[values > 0] ** 2
    if len(squares) < 10:
        return (float("nan"),) * len(POWER_LAW)
    # The package writes its progress to the terminal and warns where a log-normal cannot be fitted.
    with warnings.catch_warnings(), redirect_stdout(StringIO()), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        fit = powerlaw.Fit(squares, verbose=False)
        ratio = fit.distribution_compare("power_law", "lognormal")[0]
    return float(fit.alpha), float(fit.xmin), float(fit.D), float((squares >= fit.xmin).sum()), float(ratio)
