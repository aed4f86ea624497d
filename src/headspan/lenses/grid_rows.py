"""Rows of a table from whole arrays: one for every place on a grid, none of them selected by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import xarray as xr


def grid_rows(grid: xr.Dataset, names: Sequence[str], dims: Sequence[str]) -> pd.DataFrame:
    """The values of variables at every place on a grid, in the order of nested loops over its dims.

    Parameters
    ----------
    grid
        A Dataset with a coordinate for each of `dims`.
    names
        Variables over some or all of `dims` and no others; along a dim that it lacks a variable repeats.
    dims
        The dims, outermost first.

    Returns
    -------
    pd.DataFrame
        A column for the coordinate of every dim, then one for every variable; text as str, real numbers as float64.
    """
    places = [grid[dim].values.tolist() for dim in dims]
    rows = pd.MultiIndex.from_product(places, names=dims).to_frame(index=False)
    for name in names:
        missing = {dim: grid.sizes[dim] for dim in dims if dim not in grid[name].dims}
        values = grid[name].expand_dims(missing).transpose(*dims).values.ravel()
        rows[name] = values.astype("float64") if values.dtype.kind == "f" else values
    return rows
