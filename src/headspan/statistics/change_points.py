r"""When curves change, and whether that is more than wandering.

1. A smooth step a + (b - a) / (1 + exp(-(t - tau) / w)) is fitted to a curve by least squares: tau is the change point,
   w its width. A curve of which the step explains less than half the variance has no change point (NaN).
2. That share alone proves little: of a random walk, which has no change point, a step explains 80 % in the median and
   95 % in one walk of twenty. So the same fit is made to random walks on the same places, and `p_value` is the share of
   them that a step explains as well. Null: independent equal increments from place to place.
3. Curves that pass (p <= 0.05) get a 95 % interval for tau from a moving-block bootstrap of the residuals, which keeps
   their correlation from place to place.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import OptimizeWarning, curve_fit
from scipy.special import expit

from headspan.statistics.intervals import quantile_interval
from headspan.statistics.permutation import empirical_p_value, q_values

FEWEST = 8
"""Points below which no step is fitted."""
LEAST_EXPLAINED, BLOCK, DRAWS = 0.5, 4, 200
WALKS, LEVEL = 199, 0.05
BOOTSTRAP, MOST_INTERVALS = 100, 20


@dataclass(frozen=True)
class ChangePoint:
    """A step in a curve: where, how wide, from what to what, the share of variance it explains; NaN for none."""

    step: float
    low: float
    high: float
    width: float
    before: float
    after: float
    explained: float

    @property
    def found(self) -> bool:
        return bool(np.isfinite(self.step))


NONE = ChangePoint(*[float("nan")] * 7)


def _curve(t: np.ndarray, a: float, b: float, tau: float, log_w: float) -> np.ndarray:
    values: np.ndarray = a + (b - a) * expit((t - tau) * np.exp(-log_w))
    return values


def _slopes(t: np.ndarray, a: float, b: float, tau: float, log_w: float) -> np.ndarray:
    """Derivatives of the curve by a, b, tau and log w, [n, 4]."""
    at = (t - tau) * np.exp(-log_w)
    risen = expit(at)
    steep = (b - a) * risen * (1 - risen)
    return np.stack([1 - risen, risen, -steep * np.exp(-log_w), -steep * at], axis=1)


def _guess(t: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where the fit starts: the ends of the curve, where it crosses the middle, a thirtieth of the whole as width."""
    halfway = (y[0] + y[-1]) / 2
    crossing = t[int(np.argmax(y >= halfway))] if y[-1] >= y[0] else t[int(np.argmax(y <= halfway))]
    return np.array([y[0], y[-1], crossing, np.log((t[-1] - t[0]) / 30)])


def _step_fit(t: np.ndarray, y: np.ndarray, start: np.ndarray) -> np.ndarray | None:
    """Parameters a, b, tau, log w; None where least squares does not settle or the step lies outside the data."""
    span = t[-1] - t[0]
    narrowest = np.log(np.diff(t).min() / 8)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizeWarning)
            found, _ = curve_fit(
                _curve,
                t,
                y,
                p0=start,
                jac=_slopes,
                bounds=([-np.inf, -np.inf, t[0], narrowest], [np.inf, np.inf, t[-1], np.log(span)]),
                max_nfev=400,
            )
    except RuntimeError:
        return None
    return np.asarray(found)


def change_point(step: np.ndarray, values: np.ndarray, seed: int = 0, draws: int = DRAWS) -> ChangePoint:
    """The step in a curve with a bootstrap interval.

    Parameters
    ----------
    step, values
        [n] each; rows that are not finite are left out; at least 8 must remain.
    seed, draws
        Of the bootstrap; no draws leave the interval NaN.

    Returns
    -------
    ChangePoint
        `low`..`high` is a 95 % interval for `step`; `ChangePoint.found` is False for a curve that is no step.
    """
    t, y = np.asarray(step, dtype=float), np.asarray(values, dtype=float)
    known = np.isfinite(t) & np.isfinite(y)
    t, y = t[known], y[known]
    if len(t) < FEWEST or np.ptp(y) == 0:
        return NONE
    fit = _step_fit(t, y, _guess(t, y))
    if fit is None:
        return NONE
    residual = y - _curve(t, *fit)
    explained = 1 - residual.var() / y.var()
    if explained < LEAST_EXPLAINED:
        return NONE
    low, high = _interval(t, fit, residual, seed, draws)
    return ChangePoint(float(fit[2]), low, high, float(np.exp(fit[3])), float(fit[0]), float(fit[1]), float(explained))


def _interval(t: np.ndarray, fit: np.ndarray, residual: np.ndarray, seed: int, draws: int) -> tuple[float, float]:
    """Quantiles of tau over curves whose residuals are shuffled in blocks."""
    random, n, curve = np.random.default_rng(seed), len(t), _curve(t, *fit)
    taus = []
    for _ in range(draws):
        starts = random.integers(0, max(n - BLOCK, 1), size=-(-n // BLOCK))
        noise = np.concatenate([residual[start : start + BLOCK] for start in starts])[:n]
        again = _step_fit(t, curve + np.resize(noise, n), fit)
        if again is not None:
            taus.append(again[2])
    if len(taus) < 2:
        return float("nan"), float("nan")
    return quantile_interval(taus)


@lru_cache(maxsize=16)
def explained_under_null(places: tuple[float, ...], walks: int = WALKS, seed: int = 0) -> tuple[float, ...]:
    """Shares of variance that a step explains of random walks, ascending; 0 where it explains less than half."""
    random, at = np.random.default_rng(seed), np.asarray(places)
    shares = [change_point(at, random.normal(size=len(at)).cumsum(), draws=0).explained for _ in range(walks)]
    return tuple(sorted(0.0 if share != share else share for share in shares))


def step_p_value(explained: float, places: np.ndarray, walks: int = WALKS) -> float:
    """Share of random walks that a step explains as well, in (0, 1]; uniform for random walks. NaN for no step."""
    if explained != explained:
        return float("nan")
    null = explained_under_null(tuple(float(place) for place in places), walks)
    return float(empirical_p_value(explained, np.asarray(null)))


def change_points(values: np.ndarray, places: np.ndarray, walks: int = WALKS, seed: int = 0) -> dict[str, np.ndarray]:
    """The change point of every curve.

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
        Arrays [curve]: `change`, the place of change, with `low` and `high` (95 %), the fitted curve `before` and
        `after` it (at the first and last place, since a slow step's levels may lie beyond the data),
        `explained` share of variance in [0.5, 1], `p_value` and `q_value`. NaN where there is no change point, of
        which fewer than 8 places never have any.
    """
    fits = [change_point(places, row, seed, draws=0) for row in values]
    p = np.array([step_p_value(fit.explained, places, walks) for fit in fits])
    passing = [row for row in np.argsort(p, kind="stable") if p[row] <= LEVEL][:MOST_INTERVALS]
    for row in passing:
        fits[row] = change_point(places, values[row], seed, BOOTSTRAP)
    columns = {
        "change": [fit.step for fit in fits],
        "low": [fit.low for fit in fits],
        "high": [fit.high for fit in fits],
        "before": [_level(fit, places[0], row) for fit, row in zip(fits, values, strict=True)],
        "after": [_level(fit, places[-1], row) for fit, row in zip(fits, values, strict=True)],
        "explained": [fit.explained for fit in fits],
    }
    return {name: np.asarray(column) for name, column in columns.items()} | {"p_value": p, "q_value": q_values(p)}


def _level(fit: ChangePoint, place: float, values: np.ndarray) -> float:
    """The fitted curve at a place, within what was measured: a count does not fall below 0 by a fit's wavering."""
    if fit.step != fit.step:
        return float("nan")
    level = fit.before + (fit.after - fit.before) * expit((place - fit.step) / fit.width)
    return float(np.clip(level, np.nanmin(values), np.nanmax(values)))
