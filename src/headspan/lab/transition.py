r"""When a model learns: the change point of a curve, its interval, and what moves before or after it.

A curve is fitted by a + (b - a) / (1 + exp(-(t - tau) / w)), by least squares. tau is the change point, w its width.
Its interval comes from a moving-block bootstrap of the residuals, which keeps their correlation from row to row. A
curve of which the step explains less than half the variance has no change point (NaN).

Lead or lag of a quantity is its own tau less that of OOD accuracy, both fitted up to shortly after the transition,
since several quantities turn round later. Negative: it moves first. Sharpness is measured too seldom for a fit; for it
the half-way point between its value before and its last one is taken (`halfway`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeWarning, curve_fit
from scipy.special import expit, stdtrit

from headspan.errors import HeadspanError

LEAST_EXPLAINED, BLOCK, DRAWS, LEVEL = 0.5, 4, 200, 0.95
WIDTHS_AFTER, ROWS_AFTER = 5.0, 4
LEAST_RISE = 0.3


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


def _fit(t: np.ndarray, y: np.ndarray, start: np.ndarray) -> np.ndarray | None:
    """Parameters a, b, tau, log w; None where least squares does not settle or the step lies outside the data."""
    import warnings

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
    if len(t) < 8 or np.ptp(y) == 0:
        return NONE
    fit = _fit(t, y, _guess(t, y))
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
        again = _fit(t, curve + np.resize(noise, n), fit)
        if again is not None:
            taus.append(again[2])
    if len(taus) < 2:
        return float("nan"), float("nan")
    low, high = np.quantile(taus, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def transition(step: np.ndarray, ood_accuracy: np.ndarray, seed: int = 0, draws: int = DRAWS) -> ChangePoint:
    """The change point of OOD accuracy; none where accuracy never rises by 0.3, whatever the curve's shape."""
    if np.nanmax(ood_accuracy) - np.nanmin(ood_accuracy) < LEAST_RISE:
        return NONE
    return change_point(step, ood_accuracy, seed, draws)


def lag(step: np.ndarray, values: np.ndarray, at: ChangePoint) -> float:
    """Steps from the transition to the quantity's own change point, up to shortly after it; negative if it comes first.

    NaN where there is no transition or the quantity takes no step by then.
    """
    t = np.asarray(step, dtype=float)
    if not at.found:
        return float("nan")
    last = int(np.searchsorted(t, at.step + WIDTHS_AFTER * at.width)) + ROWS_AFTER
    own = change_point(t[:last], np.asarray(values, dtype=float)[:last], draws=0)
    return own.step - at.step


def halfway(step: np.ndarray, values: np.ndarray, at: ChangePoint) -> float:
    """Steps from the transition to where a curve has gone half its way, for one with too few rows to be fitted.

    The way leads from its last row before the transition to its last of all, in straight lines between rows; so the
    answer is good to about the distance of two rows. NaN without a transition, without a row on either side of it, or
    for a curve that ends within a tenth of where it was.
    """
    t, y = np.asarray(step, dtype=float), np.asarray(values, dtype=float)
    known = np.isfinite(y)
    t, y = t[known], y[known]
    early = np.flatnonzero(t <= at.step)
    if not at.found or not len(early) or early[-1] == len(t) - 1:
        return float("nan")
    start = early[-1]
    if abs(y[-1] - y[start]) < 0.1 * abs(y[start]):
        return float("nan")
    gone = (y[start:] - y[start]) / (y[-1] - y[start])
    after = int(np.argmax(gone >= 0.5))
    return float(np.interp(0.5, gone[after - 1 : after + 1], t[start + after - 1 : start + after + 1])) - at.step


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Mean over seeds with Student's 95 % interval; the interval is NaN below two values."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if len(known) == 0:
        return (float("nan"),) * 3
    mean = float(known.mean())
    if len(known) < 2:
        return mean, float("nan"), float("nan")
    half = float(stdtrit(len(known) - 1, (1 + LEVEL) / 2) * known.std(ddof=1) / len(known) ** 0.5)
    return mean, mean - half, mean + half


def lags_over_seeds(lags: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float, float]]:
    """For each quantity, the mean lag over seeds and its interval."""
    if not lags:
        raise HeadspanError("lags over seeds need at least one run, found none")
    return {name: mean_interval([one[name] for one in lags]) for name in lags[0]}
