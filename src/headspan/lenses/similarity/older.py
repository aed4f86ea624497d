"""Similarity results of version 1, which had other axes within layers and kept some numbers in tables only."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import HEAD, LAYER
from headspan.lenses.similarity.layers import Variables, closest_pairs

WITHIN = ("layer_distance", "layer_distance_null", "layer_distance_z")


def upgraded(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with today's axes and all of today's variables."""
    values = {str(name): one.values for name, one in dataset.data_vars.items()}
    angles = np.degrees(values["angles_RQ_RK"])
    more: Variables = {name: ((LAYER, HEAD, "peer"), values[name]) for name in WITHIN}
    more |= {"smallest_angle": ((LAYER, HEAD), angles[..., 0])}
    more |= {"largest_angle": ((LAYER, HEAD), np.fmax.reduce(angles, axis=-1))}
    more |= closest_pairs(values, dataset[LAYER].values.tolist())
    return dataset.drop_vars(WITHIN).assign(more).assign_attrs(distance=dataset.attrs["metric"])
