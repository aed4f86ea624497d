"""Variables of a result as one table: a row per cell of their grid, a column per axis, and heads by their labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import DST_HEAD, DST_LAYER, HEAD, KV_HEAD, LAYER, SRC_HEAD, SRC_LAYER
from headspan.lenses.affinity.edges import head_labels

SIDES = {"src": (SRC_LAYER, SRC_HEAD), "dst": (DST_LAYER, DST_HEAD)}


def grid_table(dataset: xr.Dataset, names: Sequence[str], grouped: bool = False) -> pd.DataFrame:
    """The variables `names` of a dataset, cell by cell.

    Parameters
    ----------
    dataset
        Any result, or one node of it.
    names
        Variables; one with fewer axes than the others is repeated along the axes it lacks.
    grouped
        Whether kv heads are fewer than heads, so that they have labels of their own.

    Returns
    -------
    Table with `label` (or `src` and `dst`) where an axis of layers and one of heads are there, the axes, the variables.
    """
    axes = list(dict.fromkeys(str(axis) for name in names for axis in dataset[name].dims))
    sizes = {axis: dataset.sizes[axis] for axis in axes}
    places = dict(zip(axes, np.indices(tuple(sizes.values())).reshape(len(axes), -1), strict=True))
    grid = {axis: _names(dataset, axis)[place] for axis, place in places.items()}
    columns = {**_labels(grid, grouped), **grid}
    for name in names:
        columns[name] = _spread(dataset.variables[name], sizes)
    return pd.DataFrame(columns)


def _spread(variable: xr.Variable, sizes: dict[str, int]) -> np.ndarray:
    """A variable along all axes, flat."""
    own = [axis for axis in sizes if axis in variable.dims]
    shape = [size if axis in own else 1 for axis, size in sizes.items()]
    return np.broadcast_to(variable.transpose(*own).values.reshape(shape), list(sizes.values())).ravel()


def _names(dataset: xr.Dataset, axis: str) -> np.ndarray:
    return np.asarray(dataset[axis].values if axis in dataset.coords else np.arange(dataset.sizes[axis]))


def _labels(grid: dict[str, np.ndarray], grouped: bool) -> dict[str, np.ndarray]:
    """Labels of the heads that a grid runs over."""
    found: dict[str, np.ndarray] = {}
    if LAYER in grid and (HEAD in grid or KV_HEAD in grid):
        found["label"] = head_labels(grid[LAYER], grid[HEAD if HEAD in grid else KV_HEAD], grouped and HEAD not in grid)
    for side, (layer, head) in SIDES.items():
        if head in grid and (layer in grid or LAYER in grid):
            found[side] = head_labels(grid[layer if layer in grid else LAYER], grid[head], False)
    return found
