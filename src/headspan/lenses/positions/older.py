"""Positions results of version 1: heads of layer 0 had an axis of their own, and p-values were logarithms only."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import HEAD, LAYER
from headspan.lenses.positions.schema import CENTERING, CENTERINGS

RENAMED = {"decile": "decile_mass", "angle": "angles"}
"""Variables that bore the name of their axis."""
ENDINGS = {"": "", "_chance": "_null", "_z": "_z", "_log_p": "_log_p"}
FIRST_LAYER = ("logit_share", "logit_share_z", "logit_sd")


def upgraded(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with today's axes and all of today's variables."""
    renamed = {f"{old}{end}": f"{new}{ENDINGS[end]}" for old, new in RENAMED.items() for end in ENDINGS}
    there = {old: new for old, new in renamed.items() if old in dataset.variables}
    more = {new: dataset.variables[old].to_base_variable() for old, new in there.items()}
    for name in FIRST_LAYER:
        if name in dataset:
            values = dataset[name].values
            every = np.full((dataset.sizes[LAYER], *values.shape), np.nan)
            every[dataset[LAYER].values.tolist().index(0)] = values
            more[name] = xr.Variable((LAYER, HEAD, "term")[: every.ndim], every)
    if "coordinate_chosen" in dataset:
        more["coordinate_count"] = dataset["coordinate_chosen"].sum("coordinate").variable
    found = dataset.drop_vars([*there, *(name for name in FIRST_LAYER if name in dataset)]).assign(more)
    for name in [str(name) for name in found.data_vars if str(name).endswith("_log_p")]:
        found[f"{name.removesuffix('_log_p')}_p"] = np.exp(found[name])
    centering = str(dataset.attrs["layers_against"]).removeprefix("tables ").replace("centred", "centered")
    return found.assign_coords({CENTERING: list(CENTERINGS)}).assign_attrs(centering=centering)
