"""p-values of gains against leverage (positions): random sets of coordinates under gains of several laws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from docs.calibration.rows import Row, rows
from headspan.lenses.positions.gains import gain_auc

COORDINATES, CARRYING = 128, 20
COVERS = {"positions": ("gain_auc_p",)}
NULLS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "own null": lambda random: random.random(COORDINATES),
    "heavy tails": lambda random: random.standard_cauchy(COORDINATES),
    "most gains equal": lambda random: np.where(random.random(COORDINATES) < 0.8, 1.0, random.random(COORDINATES)),
}


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` norms each."""
    random = np.random.default_rng(seed)
    found: list[Row] = []
    for null, gains in NULLS.items():
        chosen = (random.permutation(COORDINATES) < CARRYING for _ in range(draws))
        p = np.array([gain_auc(np.abs(gains(random)), each)[1] for each in chosen])
        found += rows("positions gain_auc", null, p)
    return found
