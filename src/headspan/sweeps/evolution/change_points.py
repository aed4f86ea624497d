r"""When curves change, and whether that is more than wandering.

1. A smooth step a + (b - a) / (1 + exp(-(t - tau) / w)) is fitted to every curve (`lab.transition`): tau is the change
   point, the share of variance that the step explains says how well it fits.
2. That share alone proves little: of a random walk, which has no change point, a step explains 80 % in the median and
   95 % in one walk of twenty. So the same fit is made to random walks on the same steps, and `p_value` is the share of
   them that a step explains as well. Null: independent equal increments from checkpoint to checkpoint.
3. Curves that pass (p <= 0.05) get a 95 % interval for tau from a moving-block bootstrap of the residuals.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import xarray as xr
from scipy.special import expit

from headspan.lab.transition import NONE, ChangePoint, change_point
from headspan.lenses.affinity.nulls import q_values
from headspan.sweeps.evolution.axis import Axis

FEWEST = 8
"""Checkpoints below which no step is fitted."""
WALKS, LEVEL = 199, 0.05
BOOTSTRAP, MOST_INTERVALS = 100, 20


@lru_cache(maxsize=16)
def explained_by_chance(places: tuple[float, ...], walks: int = WALKS, seed: int = 0) -> tuple[float, ...]:
    """Shares of variance that a step explains of random walks, ascending; 0 where it explains less than half."""
    random, at = np.random.default_rng(seed), np.asarray(places)
    shares = [change_point(at, random.normal(size=len(at)).cumsum(), draws=0).explained for _ in range(walks)]
    return tuple(sorted(0.0 if share != share else share for share in shares))


def step_p_value(explained: float, places: np.ndarray, walks: int = WALKS) -> float:
    """Share of random walks that a step explains as well, in (0, 1]; uniform for random walks. NaN for no step."""
    if explained != explained:
        return float("nan")
    chance = np.asarray(explained_by_chance(tuple(float(place) for place in places), walks))
    return float((1 + (chance >= explained).sum()) / (1 + len(chance)))


def change_points(values: np.ndarray, steps: np.ndarray, walks: int = WALKS, seed: int = 0) -> xr.Dataset:
    """The change point of every curve.

    Parameters
    ----------
    values
        [curve, step]; NaN where a curve has no value.
    steps
        [step], ascending.
    walks, seed
        Random walks of the null; seed of the bootstrap.

    Returns
    -------
    Dataset
        Over `curve`: `change`, the step of change, with `low` and `high` (95 %), the fitted curve `before` and `after`
        it (at the first and last step, since a slow step's levels may lie beyond the data),
        `explained` share of variance in [0.5, 1], `p_value` and `q_value`. NaN where there is no change point, of
        which fewer than 8 checkpoints never have any.
    """
    axis = Axis.of(steps)
    places = axis.places(steps)
    fits = [_fit(places, row, 0, seed) for row in values]
    p = np.array([step_p_value(fit.explained, places, walks) for fit in fits])
    passing = [row for row in np.argsort(p, kind="stable") if p[row] <= LEVEL][:MOST_INTERVALS]
    for row in passing:
        fits[row] = _fit(places, values[row], BOOTSTRAP, seed)
    columns = {
        "change": [axis.step(fit.step) for fit in fits],
        "low": [axis.step(fit.low) for fit in fits],
        "high": [axis.step(fit.high) for fit in fits],
        "before": [_level(fit, places[0], row) for fit, row in zip(fits, values, strict=True)],
        "after": [_level(fit, places[-1], row) for fit, row in zip(fits, values, strict=True)],
        "explained": [fit.explained for fit in fits],
        "p_value": p,
        "q_value": q_values(p),
    }
    attributes = {"axis": axis.name, "null": f"{walks} random walks on the same steps", "least_steps": FEWEST}
    return xr.Dataset({name: ("curve", np.asarray(column)) for name, column in columns.items()}, attrs=attributes)


def _level(fit: ChangePoint, place: float, values: np.ndarray) -> float:
    """The fitted curve at a place, within what was measured: a count does not fall below 0 by a fit's wavering."""
    if fit.step != fit.step:
        return float("nan")
    level = fit.before + (fit.after - fit.before) * expit((place - fit.step) / fit.width)
    return float(np.clip(level, np.nanmin(values), np.nanmax(values)))


def _fit(places: np.ndarray, values: np.ndarray, draws: int, seed: int) -> ChangePoint:
    if np.isfinite(values).sum() < FEWEST:
        return NONE
    return change_point(places, values, seed, draws)
