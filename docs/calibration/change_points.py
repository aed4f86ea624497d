"""p-values of abrupt changes, for wandering and for smooth curves with noise: none of them changes abruptly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from docs.calibration.rows import Row, rows
from headspan.statistics import change_points

COVERS: dict[str, tuple[str, ...]] = {}
PLACES = 24
SMOOTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "straight line": lambda t: t,
    "square root": np.sqrt,
    "power 0.37": lambda t: t**0.37,
    "exponential saturation": lambda t: 1 - np.exp(-t / 0.2),
    "fast exponential saturation": lambda t: 1 - np.exp(-t / 0.07),
    "logarithm": lambda t: np.log1p(30 * t),
    "two exponentials": lambda t: np.exp(-t / 0.05) + np.exp(-t / 0.5),
    "slow logistic": lambda t: expit((t - 0.5) / 0.12),
    "hump": lambda t: t * np.exp(-t / 0.3),
}


def p_values(curves: np.ndarray) -> np.ndarray:
    """Of curves [curve, place] at equal distances."""
    return change_points(curves, np.arange(curves.shape[1], dtype=float))["p_value"]


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` curves of every kind."""
    random, t = np.random.default_rng(seed), np.linspace(0, 1, PLACES)
    noise = random.normal(size=(4, draws, PLACES))
    walk, drifting = noise[0].cumsum(1), noise[1].cumsum(1) + np.arange(PLACES)
    each = -(-draws // len(SMOOTH))
    smooth = np.concatenate([np.tile(shape(t) / np.ptp(shape(t)), (each, 1)) for shape in SMOOTH.values()])[:draws]
    kinds = {
        "own null": walk,
        "random walk, drift of 1 sd a step": drifting,
        "smooth curve, white noise of 2 %": smooth + 0.02 * noise[2],
        "smooth curve, random walk of 2 % a step": smooth + 0.02 * noise[3].cumsum(1),
    }
    return [row for null, curves in kinds.items() for row in rows("change point", null, p_values(curves))]
