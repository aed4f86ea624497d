"""p-values of traces of circuits (spectra), on random weights: models share nothing (`models`)."""

from __future__ import annotations

import numpy as np

import headspan
from docs.calibration.models import generator_of, gpt2, kinds
from docs.calibration.rows import Row, pooled_rows

LAYERS = 5
COVERS = {"spectra": ("trace_p",)}


def rates(seed: int, draws: int, stress: bool = True) -> list[Row]:
    """Rates over `draws` models of each kind."""
    found: list[Row] = []
    for place, null, kind in kinds(stress):
        p: dict[str, list[np.ndarray]] = {}
        for draw in range(draws):
            model = gpt2(kind(generator_of(seed, place, draw)), LAYERS)
            traces = headspan.spectra(model, progress=False)["alignment"]["trace_p"]
            for of in traces["null"].values:
                p.setdefault(f"trace_p, {of}", []).append(traces.sel(null=of).values.ravel())
        found += pooled_rows("spectra", null, p)
    return found
