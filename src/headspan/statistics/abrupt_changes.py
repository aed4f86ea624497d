r"""Whether a curve changes abruptly, and where: a step or a kink against every gradual curve.

1. Two families of shapes on the axis from 0 (first place) to 1 (last). **Abrupt**: a logistic step of width w <= 0.06,
   which takes its way from 10 to 90 % within a quarter of the axis, or a kink (a slope that changes at one place); both
   at least two places from the ends. **Gradual**: powers, exponentials, logarithms and hyperbolas that start at either
   end, bell curves, and logistic curves of width w >= 0.09, more than 40 % of the axis. Between the two widths a curve
   is judged by noise and chance.
2. A curve is fitted by a straight line and one shape, by least squares, with the best shape of each family. The
   statistic is the ratio R of the two sums of squared residuals, gradual over abrupt. A straight line is in both, so a
   drift, however strong, changes nothing. For a smooth curve R is near 0, for a clean step it is large.
3. Random walks, which wander without any change, make R exceed 1.4 to 1.7 in one case of twenty. So `p_value` is the
   share of random walks on the same places with at least this R. White and autoregressive noise have large R less
   often.
4. Curves that pass (p <= 0.05) have the place of the best abrupt shape as change point, with a 95 % interval from a
   moving-block bootstrap of the residuals, which keeps their correlation from place to place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import expit

from headspan.statistics.change_points import BLOCK, FEWEST
from headspan.statistics.intervals import quantile_interval
from headspan.statistics.permutation import empirical_p_value, q_values

WALKS, LEVEL, BOOTSTRAP = 1999, 0.05, 200
ABRUPT, GRADUAL = (0.001, 0.02, 0.04, 0.06), (0.09, 0.12, 0.16, 0.22, 0.3)
"""Widths of logistic steps, as shares of the axis."""
POWERS = (0.1, 0.25, 0.5, 0.75, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
RATES = tuple(np.geomspace(0.03, 1, 12))
FROM_END, PER_GAP = 2, 4
"""Places before the first step and after the last; steps tried between two places."""
ROUNDING = 1e-9
"""Share of a curve below which what a straight line leaves of it is rounding."""
COLUMNS = ("change", "low", "high", "before", "after", "explained")


@dataclass(frozen=True)
class Shapes:
    """Unit vectors that straight lines do not hold; of the abrupt ones also where, and whether a kink."""

    line: np.ndarray
    gradual: np.ndarray
    abrupt: np.ndarray
    center: np.ndarray
    kink: np.ndarray


@lru_cache(maxsize=64)
def _shapes(places: tuple[float, ...]) -> Shapes:
    at = np.asarray(places)
    t = (at - at[0]) / (at[-1] - at[0])
    line = np.linalg.qr(np.stack([np.ones(len(t)), t], 1))[0]
    index = np.linspace(FROM_END, len(t) - 1 - FROM_END, PER_GAP * (len(t) - 1 - 2 * FROM_END) + 1)
    center = np.interp(index, np.arange(len(t)), t)
    steps = [expit((t - c) / w) for w in ABRUPT for c in center]
    kinks = [np.maximum(t - c, 0) for c in center]
    abrupt, kept = _unit(np.array(steps + kinks), line)
    where = np.tile(center, len(ABRUPT) + 1)[kept]
    kink = (np.arange(len(kept)) >= len(steps))[kept]
    return Shapes(line, _unit(_gradual(t), line)[0], abrupt, at[0] + where * (at[-1] - at[0]), kink)


def _gradual(t: np.ndarray) -> np.ndarray:
    found = [side**power for side in (t, 1 - t) for power in POWERS]
    for side in (t, 1 - t):
        for rate in RATES:
            found += [np.exp(-side / rate), np.log1p(side / rate), 1 / (1 + side / rate)]
    for width in GRADUAL:
        found += [expit((t - center) / width) for center in np.linspace(-0.2, 1.2, 29)]
        found += [np.exp(-(((t - center) / width) ** 2) / 8) for center in np.linspace(-0.2, 1.2, 15)]
    return np.array(found)


def _unit(rows: np.ndarray, line: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows without their straight line, of length 1; and which were kept, since some are straight lines."""
    left = rows - (rows @ line) @ line.T
    size = np.linalg.norm(left, axis=1)
    kept = size > 1e-6
    return left[kept] / size[kept, None], kept


def _ratio(curves: np.ndarray, shapes: Shapes) -> np.ndarray:
    """R of every curve [curve, place]; 0 for what is a straight line but for rounding."""
    left = curves - (curves @ shapes.line) @ shapes.line.T
    total = (left**2).sum(1)
    bent = total > ROUNDING**2 * (curves**2).sum(1)
    total = np.where(bent, total, 1.0)
    gradual, abrupt = (1 - ((left @ set_.T) ** 2).max(1) / total for set_ in (shapes.gradual, shapes.abrupt))
    # A clean step leaves nothing but rounding.
    ratio: np.ndarray = np.where(bent, np.maximum(gradual, 1e-12) / np.maximum(abrupt, 1e-12), 0.0)
    return ratio


@lru_cache(maxsize=64)
def ratios_of_walks(places: tuple[float, ...], walks: int = WALKS, seed: int = 0) -> np.ndarray:
    """R of random walks with equal increments from place to place, [walk]."""
    steps = np.random.default_rng(seed).normal(size=(walks, len(places)))
    return _ratio(steps.cumsum(1), _shapes(places))


def change_points(values: np.ndarray, places: np.ndarray, walks: int = WALKS, seed: int = 0) -> dict[str, np.ndarray]:
    """The abrupt change of every curve, if it has one.

    Parameters
    ----------
    values
        [curve, place]; NaN where a curve has no value.
    places
        [place], ascending: where on the axis of time each value was measured.
    walks, seed
        Random walks of the null; random seed of the bootstrap.

    Returns
    -------
    dict
        Arrays [curve]. `p_value` in (0, 1]: uniform for random walks with any constant drift, mostly larger for smooth
        curves with noise; NaN for constants and with fewer than 8 places. `q_value` over all curves. Where p <= 0.05:
        `change`, its place, with `low` and `high` (95 %); `kind`, "level" for a step and "slope" for a kink; the fitted
        curve `before` and `after`, at the first and last place; its `explained` share of variance. Else NaN and "".
    """
    found: dict[str, np.ndarray] = {name: np.full(len(values), np.nan) for name in (*COLUMNS, "p_value")}
    kinds = np.full(len(values), "", dtype="<U5")
    for row, curve in enumerate(np.asarray(values, dtype=float)):
        known = np.isfinite(curve)
        at, y = tuple(float(place) for place in np.asarray(places)[known]), curve[known]
        if len(y) < FEWEST or np.ptp(y) == 0:
            continue
        p = float(empirical_p_value(float(_ratio(y[None], _shapes(at))[0]), ratios_of_walks(at, walks)))
        found["p_value"][row] = p
        if p <= LEVEL:
            numbers, kinds[row] = _change(y, _shapes(at), seed)
            for name, number in numbers.items():
                found[name][row] = number
    return found | {"q_value": q_values(found["p_value"]), "kind": kinds}


def _change(y: np.ndarray, shapes: Shapes, seed: int) -> tuple[dict[str, float], str]:
    """The best abrupt shape of a curve: numbers by name, and its kind."""
    straight = (y @ shapes.line) @ shapes.line.T
    parts = shapes.abrupt @ y
    best = int(np.argmax(parts**2))
    fitted = straight + parts[best] * shapes.abrupt[best]
    alike = shapes.kink == shapes.kink[best]
    low, high = _interval(fitted, y - fitted, shapes.abrupt[alike], shapes.center[alike], seed)
    # Within what was measured: a count does not fall below 0 by a fit's wavering.
    before, after = np.clip(fitted[[0, -1]], y.min(), y.max())
    numbers = (shapes.center[best], low, high, before, after, 1 - (y - fitted).var() / y.var())
    kind = "slope" if shapes.kink[best] else "level"
    return {name: float(number) for name, number in zip(COLUMNS, numbers, strict=True)}, kind


def _interval(
    fitted: np.ndarray, residual: np.ndarray, abrupt: np.ndarray, center: np.ndarray, seed: int
) -> tuple[float, float]:
    """Quantiles of the place over curves whose residuals are shuffled in blocks."""
    n, random = len(fitted), np.random.default_rng(seed)
    starts = random.integers(0, n - BLOCK + 1, size=(BOOTSTRAP, -(-n // BLOCK)))
    noise = residual[(starts[..., None] + np.arange(BLOCK)).reshape(BOOTSTRAP, -1)[:, :n]]
    return quantile_interval(center[np.argmax(((fitted + noise) @ abrupt.T) ** 2, axis=1)])
