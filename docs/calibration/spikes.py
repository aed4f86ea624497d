"""p-values of the largest singular value, for random matrices and products of the shapes that small heads have."""

from __future__ import annotations

import numpy as np

from docs.calibration.rows import Row, rows
from headspan.lenses.spectra.law import bulk_scale, law_of, spike_log_p
from headspan.statistics import random_product_singular_values, random_singular_values

COVERS = {"spectra": ("largest_p", "leading_p")}
SHAPES = ((8, 8, None), (16, 16, None), (64, 16, None), (64, 64, None), (16, 16, 16), (64, 64, 16))
"""m, n and, for a product, the inner side."""


def largest_p_values(m: int, n: int, inner: int | None, draws: int, seed: int) -> np.ndarray:
    """p-values of the largest singular values of random matrices that the law has not seen, [draw]."""
    if inner is None:
        values = random_singular_values(m, n, draws, seed).numpy()
    else:
        values = random_product_singular_values(m, n, inner, draws, seed).numpy()
    law = law_of(m, n, inner, 0)
    return np.exp(spike_log_p(values, law, bulk_scale(values, law.typical))[:, 0])


def rates(seed: int, draws: int) -> list[Row]:
    """Rates under the own null, shape by shape; there is no other, since a decaying spectrum is what is looked for."""
    found: list[Row] = []
    for m, n, inner in SHAPES:
        shape = f"{m} x {n}" if inner is None else f"({m} x {inner})({inner} x {n})"
        found += rows(f"spike, {shape}", "own null", largest_p_values(m, n, inner, draws, seed + 1000))
    return found
