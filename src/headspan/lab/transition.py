r"""When a model learns: the change point of its OOD accuracy, and what moves before or after it.

Lead or lag of a quantity is its own tau less that of OOD accuracy, both fitted up to shortly after the transition,
since several quantities turn round later. Negative: it moves first. Sharpness is measured too seldom for a fit; for it
the half-way point between its value before and its last one is taken (`halfway`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headspan.errors import HeadspanError
from headspan.statistics.change_points import DRAWS, NONE, ChangePoint, change_point
from headspan.statistics.intervals import mean_interval

WIDTHS_AFTER, ROWS_AFTER = 5.0, 4
LEAST_RISE = 0.3


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


def lags_over_seeds(lags: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float, float]]:
    """For each quantity, the mean lag over seeds and its interval."""
    if not lags:
        raise HeadspanError("lags over seeds need at least one run, found none")
    return {name: mean_interval([one[name] for one in lags]) for name in lags[0]}
