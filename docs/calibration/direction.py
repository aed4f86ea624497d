"""p-values of the direction test, for scores without a direction: by layers, and where heads differ."""

from __future__ import annotations

import numpy as np

from docs.calibration.rows import Row, rows
from headspan.statistics import direction_test

COVERS = {"affinity": ("projection_kernel_direction_p", "composition_score_direction_p")}
HEADS = 4


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` models of 4, 5, 8 and 12 layers; four layers can give no p-value below 1/12."""
    random, found = np.random.default_rng(seed), []
    for n_layers in (4, 5, 8, 12):
        layers, p = np.arange(n_layers), np.full((2, draws), np.nan)
        for draw in range(draws):
            noise = random.normal(size=(n_layers, HEADS, n_layers, HEADS))
            heads = random.exponential(size=(2, n_layers, HEADS))
            uneven = noise + 3 * heads[0][:, :, None, None] + 3 * heads[1][None, None]
            for row, scores in enumerate((noise, uneven)):
                p[row, draw] = direction_test(scores, layers, permutations=1999, seed=draw).p_value
        for row, null in enumerate(("own null", "anisotropic: heads differ in their mean overlap")):
            found += rows(f"direction, {n_layers} layers", null, p[row])
    return found
