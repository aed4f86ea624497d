r"""A smooth step in a curve: where it lies and how wide it is.

A smooth step a + (b - a) / (1 + exp(-(t - tau) / w)) is fitted by least squares: tau is the change point, w its width.
A curve of which the step explains less than half the variance has no change point (NaN). An interval for tau comes from
a moving-block bootstrap of the residuals, which keeps their correlation from place to place.

This measures a step that is known to be there, such as the transition of a trained model's accuracy. Whether a curve
has an abrupt change at all is tested in `abrupt_changes`: a step also explains most of a walk or a straight line.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from headspan.statistics.intervals import quantile_interval

FEWEST = 8
"""Points below which no step is fitted."""
LEAST_EXPLAINED, BLOCK, DRAWS = 0.5, 4, 200


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
    from scipy.optimize import OptimizeWarning, curve_fit

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
