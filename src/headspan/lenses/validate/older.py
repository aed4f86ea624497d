"""Files of versions 1 and 2: their controls removed what no target reads, so that their causes are left out."""

from __future__ import annotations

import xarray as xr


def upgraded(dataset: xr.Dataset) -> xr.Dataset | dict[str, xr.Dataset]:
    """One node of an older version; nothing of the nodes that held causes and how scores rank them."""
    old = "pattern_control" in dataset or "sample" in dataset.coords
    nothing: dict[str, xr.Dataset] = {}
    return nothing if old else dataset
