"""p-values of the similarity lens: the projection kernel of a head's query and key read spaces, on random weights."""

from __future__ import annotations

import numpy as np

import headspan
from docs.calibration.models import generator_of, gpt2, kinds
from docs.calibration.rows import Row, pooled_rows

COVERS = {"similarity": ("projection_kernel_p",)}


def rates(seed: int, draws: int, stress: bool = True) -> list[Row]:
    """Rates over `draws` models of eight layers; heads are independent."""
    found: list[Row] = []
    for place, null, kind in kinds(stress):
        p: list[np.ndarray] = []
        for draw in range(draws):
            model = gpt2(kind(generator_of(seed, place, draw)), 8)
            result = headspan.similarity(model, across_layers=False, maps=False, progress=False)
            p.append(result["projection_kernel_p"].values.ravel())
        found += pooled_rows("similarity", null, {"projection_kernel_p": p})
    return found
