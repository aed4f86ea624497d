"""Detected labels as head classes, for models whose heads nobody has labelled."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import HeadLabel
from headspan.errors import HeadspanError
from headspan.lenses.affinity.head_classes import HeadClasses
from headspan.lenses.detect.lens import REPEATED


def detected_classes(result: xr.Dataset) -> HeadClasses:
    """Class of every head that a detector labels on repeated random tokens; heads may be in several.

    Parameters
    ----------
    result
        Of `compute`.
    """
    labels, layers = result["label"].sel(prompt=REPEATED), result["layer"].values
    classes = {
        str(name): tuple(
            str(HeadLabel(int(layers[place]), int(head)))
            for place, head in np.argwhere(labels.sel(detector=name).values)
        )
        for name in result["detector"].values
    }
    found = {name: heads for name, heads in classes.items() if heads}
    if not found:
        raise HeadspanError(
            f"no head scores above {result.attrs['threshold']} for any detector on repeated random tokens; "
            "there are no detected labels to use"
        )
    return HeadClasses(found, f"detected on repeated random tokens, score above {result.attrs['threshold']}")
