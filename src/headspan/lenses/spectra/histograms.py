"""Singular values in bins beside what the law puts there, for figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float

from headspan.lenses.spectra.law import law_of

BINS = 48
REACH = 2.5


@dataclass(frozen=True)
class Histogram:
    """Counts of one matrix's singular values, and those expected with the fitted and with the initial scale.

    `beyond` singular values lie above the last bin, the largest of all at `largest`.
    """

    centres: Float[np.ndarray, " bins"]
    counts: Float[np.ndarray, " bins"]
    fitted: Float[np.ndarray, " bins"]
    initial: Float[np.ndarray, " bins"]
    beyond: int
    largest: float


def histogram(result: xr.DataTree, kind: str, place: int = 0, bins: int = BINS) -> Histogram:
    """Of the matrix at `place` along the layers of a whole kind, or of a table.

    Bins end at `REACH` times the edge of the bulk at the latest, so that a few large values do not flatten the rest.
    Expected counts are NaN where no scale could be fitted; they add up to min(rows, columns).
    """
    node = result[kind].to_dataset()
    here = node.isel(layer=place) if "layer" in node.dims else node
    values = here["singular_value"].values
    edge = float(here["edge"])
    top = min(float(values[0]), REACH * edge) if edge > 0 else float(values[0])
    top = max(top, edge) if edge > 0 else top
    edges = np.linspace(0.0, top * 1.0001 if top > 0 else 1.0, bins + 1)
    law = law_of(int(node["rows"]), int(node["columns"]), None, int(result.attrs["seed"]))

    def expected(sigma: float) -> np.ndarray:
        if not sigma > 0:
            return np.full(bins, np.nan)
        return np.diff(law.cdf(edges / sigma)) * len(values)

    return Histogram(
        centres=(edges[1:] + edges[:-1]) / 2,
        counts=np.histogram(values, edges)[0].astype(float),
        fitted=expected(float(here["sigma"])),
        initial=expected(float(here["sigma_init"])),
        beyond=int((values > edges[-1]).sum()),
        largest=float(values[0]),
    )
