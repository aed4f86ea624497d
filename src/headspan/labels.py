"""Heads as labels: grids of layers and heads to one axis of `L4H7`, and back.

Measurements count layers and heads; people name heads. `labeled` lays the axes (layer, head) of a dataset into one axis
`head` whose coordinate is the label, with `head_layer` and `head_index` beside it; likewise (layer, kv_head) into
`kv_head`, and source and destination of pairs into `src` and `dst`. `gridded` is the way back, for who draws a grid.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray.indexes import PandasIndex

from headspan.dims import HeadLabel
from headspan.errors import ArgumentError

AXES = {
    "head": ("layer", "head"),
    "kv_head": ("layer", "kv_head"),
    "src": ("src_layer", "src_head"),
    "dst": ("dst_layer", "dst_head"),
}
"""Public dim -> the two axes of the grid it is made of."""


class HeadIndex(PandasIndex):
    """Labels of heads; also understands `4.7` and `(4, 7)`, and says which kv head a query head reads."""

    group: int = 1

    def __init__(self, array: Any, dim: Hashable, coord_dtype: Any = None, *, group: int = 1) -> None:
        super().__init__(array, dim, coord_dtype)
        self.group = group

    def _replace(self, index: Any, dim: Any = None, coord_dtype: Any = None) -> HeadIndex:
        return type(self)(index, self.dim if dim is None else dim, coord_dtype or self.coord_dtype, group=self.group)

    def sel(self, labels: dict[Any, Any], method: Any = None, tolerance: Any = None) -> Any:
        asked = {name: self._spelled(label) for name, label in labels.items()}
        try:
            return super().sel(asked, method, tolerance)
        except KeyError as problem:
            raise ArgumentError(self._refusal(next(iter(asked.values())))) from problem

    def _spelled(self, label: Any) -> Any:
        """A label, or each of a list of them, as the axis spells it."""
        if isinstance(label, str) and label in self.index:
            return label
        if isinstance(label, tuple | str):
            return str(HeadLabel.parse(label))
        if isinstance(label, list):
            return [self._spelled(one) for one in label]
        return label

    def _refusal(self, asked: Any) -> str:
        first = next((one for one in np.atleast_1d(np.asarray(asked, dtype=object)) if one not in self.index), asked)
        known = f"{self.index[0]} to {self.index[-1]}" if len(self.index) else "none"
        if not isinstance(first, str):
            return f"{self.dim}={first!r} is not on this axis, which has {known}"
        head = HeadLabel.parse(first)
        read = str(HeadLabel(head.layer, head.head // self.group, kv=True))
        if not head.kv and read in self.index:
            return f"{self.dim}={first!r}: this axis has kv heads, and {first} reads {read}; write {self.dim}={read!r}"
        return f"{self.dim}={first!r} is not on this axis, which has {known}"


def head_labels(layers: np.ndarray, heads: np.ndarray, kv: bool = False) -> np.ndarray:
    """`L4H7` for every layer and head as an array of strings; each distinct one is written once, for speed."""
    width = int(heads.max(initial=0)) + 1
    codes, places = np.unique(layers.astype(np.int64) * width + heads, return_inverse=True)
    written = [str(HeadLabel(int(code) // width, int(code) % width, kv)) for code in codes]
    return np.array(written, dtype=object)[places]


def labeled(dataset: xr.Dataset, group: int = 1) -> xr.Dataset:
    """A dataset with one labeled axis in place of each grid of heads.

    Parameters
    ----------
    dataset
        Grids are (layer, head), (layer, kv_head), (src_layer, src_head) and (dst_layer, dst_head), with the numbers of
        layers as coordinates. The attributes `src_kv` and `dst_kv` say whether a side counts kv heads.
    group
        How many query heads read one kv head.
    """
    used = {
        dim: axes for dim, axes in AXES.items() if any(set(axes) <= set(v.dims) for v in dataset.variables.values())
    }
    coords: dict[str, Any] = {}
    for dim, axes in used.items():
        coords |= _axis(dataset, dim, axes, group)
    gone = {axis for dim, axes in used.items() for axis in axes} - {"layer"}
    data = {name: _merged(dataset.variables[name], used) for name in dataset.data_vars}
    kept = {
        name: _merged(one, used)
        for name, one in dataset.coords.variables.items()
        if name not in gone and name not in coords and not _is_grid_number(str(name), used)
    }
    beside = [one for name, one in (data | kept).items() if name != "layer"]
    if "layer" in kept and not any("layer" in one.dims for one in beside):
        del kept["layer"]
    attrs = {name: value for name, value in dataset.attrs.items() if name not in ("src_kv", "dst_kv")}
    return indexed(xr.Dataset(data, coords={**kept, **coords}, attrs=attrs), group)


def indexed(dataset: xr.Dataset, group: int = 1) -> xr.Dataset:
    """A dataset whose axes of labels understand every spelling of a head."""
    variables: dict[str, xr.Variable] = {}
    for dim in AXES:
        if dim in dataset.coords and dim in dataset.dims and dataset.variables[dim].dtype.kind in "OU":
            variables[dim] = dataset.variables[dim]
    if not variables:
        return dataset
    indexes = {
        dim: HeadIndex(pd.Index(one.values.astype(object), name=dim), dim, group=group)
        for dim, one in variables.items()
    }
    coords = {dim: (dim, one.values, one.attrs) for dim, one in variables.items()}
    plain = dataset.drop_indexes(list(variables), errors="ignore")
    return plain.assign_coords(xr.Coordinates(coords, indexes=indexes))


def gridded(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with grids of layers and heads (whole numbers) in place of labeled axes."""
    present = {dim: axes for dim, axes in AXES.items() if dim in dataset.dims and f"{dim}_layer" in dataset.coords}
    coords: dict[str, Any] = {}
    sizes: dict[str, tuple[int, int]] = {}
    attrs = dict(dataset.attrs)
    for dim, (layer, head) in present.items():
        layers, places = dataset[f"{dim}_layer"].values, dataset[f"{dim}_index"].values
        numbers = pd.unique(layers)
        sizes[dim] = (len(numbers), len(layers) // max(len(numbers), 1))
        n_layers, n_heads = sizes[dim]
        whole = np.array_equal(layers, np.repeat(numbers, n_heads))
        if not whole or not np.array_equal(places, np.tile(np.arange(n_heads), n_layers)):
            raise ArgumentError(f"the axis {dim!r} is not a whole grid of layers and heads: some were selected")
        coords |= {layer: numbers, head: np.arange(sizes[dim][1])}
        if dim in ("src", "dst"):
            attrs[f"{dim}_kv"] = int(len(layers) > 0 and "K" in str(dataset[dim].values[0]))
    own = {f"{dim}_{part}" for dim in present for part in ("layer", "index")} | set(present)
    kept = {name: one for name, one in dataset.coords.variables.items() if name not in own and name not in coords}
    data = {name: _split(dataset.variables[name], present, sizes) for name in dataset.data_vars}
    return xr.Dataset(data, coords={**{n: _split(v, present, sizes) for n, v in kept.items()}, **coords}, attrs=attrs)


def _axis(dataset: xr.Dataset, dim: str, axes: tuple[str, str], group: int) -> dict[str, Any]:
    """Labels of a public axis, and the numbers of layer and head beside them."""
    layers, n_heads = dataset.variables[axes[0]].values, dataset.sizes[axes[1]]
    layer, head = np.repeat(layers, n_heads), np.tile(np.arange(n_heads), len(layers))
    kv = bool(dataset.attrs.get(f"{dim}_kv", 0)) if dim in ("src", "dst") else dim == "kv_head" and group > 1
    return {
        dim: (dim, head_labels(layer, head, kv)),
        f"{dim}_layer": (dim, layer),
        f"{dim}_index": (dim, head),
    }


def _is_grid_number(name: str, used: Mapping[str, tuple[str, str]]) -> bool:
    return any(name in (f"{dim}_layer", f"{dim}_index") for dim in used)


def _merged(variable: xr.Variable, used: Mapping[str, tuple[str, str]]) -> xr.Variable:
    for dim, axes in used.items():
        if set(axes) <= set(variable.dims):
            rest = [each for each in variable.dims if each not in axes]
            moved = variable.transpose(*axes, *rest)
            shape = (moved.shape[0] * moved.shape[1], *moved.shape[2:])
            variable = xr.Variable((dim, *rest), moved.values.reshape(shape), moved.attrs)
    first = [dim for dim in ("src", "dst") if dim in variable.dims]
    return variable.transpose(*[d for d in variable.dims if d not in first], *first) if first else variable


def _split(
    variable: xr.Variable, present: Mapping[str, tuple[str, str]], sizes: Mapping[str, tuple[int, int]]
) -> xr.Variable:
    for dim, axes in present.items():
        if dim in variable.dims:
            at = variable.dims.index(dim)
            dims = (*variable.dims[:at], *axes, *variable.dims[at + 1 :])
            shape = (*variable.shape[:at], *sizes[dim], *variable.shape[at + 1 :])
            variable = xr.Variable(dims, variable.values.reshape(shape), variable.attrs)
    return variable
