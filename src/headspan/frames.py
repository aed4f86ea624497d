"""Tables of a result, made from its schema: rows over the axes of a variable, columns for all that goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.errors import ArgumentError
from headspan.schema import DERIVED, NULL_DIM, Schema, Table

SHORT = {"null": "expected", "z": "z", "p": "p", "q": "q"}
"""Columns of a ranking beside `score`, by the suffix of the variable."""


def nodes_of(data: xr.DataTree) -> dict[str, xr.Dataset]:
    """Every node of a tree that holds variables, by path without the leading slash; the root is ""."""
    found = {node.path.strip("/"): _with_labels(node) for node in data.subtree}
    return {name: dataset for name, dataset in found.items() if dataset.data_vars}


def _with_labels(node: xr.DataTree) -> xr.Dataset:
    """A node by itself: labels of its axes that it shares with the root, which the tree keeps once, are its own."""
    own = node.to_dataset(inherit=False)
    return own.assign_coords(
        {dim: node.coords[dim] for dim in own.dims if dim not in own.coords and dim in node.coords}
    )


def table(schema: Schema, data: xr.DataTree, spec: Table, null: str | None = None) -> pd.DataFrame:
    """One table of a result: the axes, then every variable over them, nodes one below the other.

    Parameters
    ----------
    schema, data, spec
        The declaration, the result's tree, and which table.
    null
        Under which null, where the result has several; the first by default.
    """
    parts: list[pd.DataFrame] = []
    axes: dict[str, Any] = {}
    for name, dataset in nodes_of(data).items():
        if not fnmatchcase(name, spec.nodes):
            continue
        part = _node_rows(_under(dataset, null), spec, axes)
        if part is not None:
            if spec.key:
                part.insert(0, spec.key, name.split("/")[_place_of_key(spec.nodes)])
            parts.append(part)
    if not parts:
        return pd.DataFrame()
    rows = pd.concat(parts, ignore_index=True)
    if spec.by:
        rows = rows.loc[rows[spec.by].abs().sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
    named = [name for name in (spec.key, *axes) if name]
    # Where nodes have different axes, a whole number may be absent.
    whole = {name: "Int64" for name in axes if rows[name].dtype.kind == "f" and axes[name].kind in "iu"}
    return rows[[*named, *(name for name in rows if name not in named)]].astype(whole)


def _place_of_key(nodes: str) -> int:
    """Which part of a node's path names it in a table: the first that the pattern leaves open."""
    parts = nodes.split("/")
    return next((place for place, part in enumerate(parts) if set(part) & set("*?[")), 0)


def has_table(data: xr.DataTree, spec: Table) -> bool:
    """Whether a result has the variables that give a table its rows."""
    return any(
        fnmatchcase(name, spec.nodes) and any(one in dataset for one in spec.like)
        for name, dataset in nodes_of(data).items()
    )


def ranking(
    schema: Schema,
    data: xr.DataTree,
    *,
    node: str | None = None,
    metric: str | None = None,
    by: str = "score",
    null: str | None = None,
) -> pd.DataFrame:
    """The rows of the first table by one metric, strongest first, with short names: score, expected, z, p, q."""
    if not schema.tables or not schema.metrics:
        raise ArgumentError("this lens has nothing to rank; table() gives its numbers")
    spec = schema.tables[0]
    rows = table(schema, data, spec, null)
    chosen = schema.metric(metric or next((name for name in schema.metrics if name in rows), None))
    if node is not None:
        known = list(pd.unique(rows[spec.key])) if spec.key in rows else []
        if node.upper() not in known and node not in known:
            raise ArgumentError(f"{spec.key or 'node'} {node!r} is not in this result; it has {', '.join(known)}")
        rows = rows[rows[spec.key].isin([node, node.upper()])]
    if chosen not in rows:
        there = [name for name in schema.metrics if name in rows]
        raise ArgumentError(f"metric {chosen!r} was not computed; this result has {', '.join(there)}")
    rows = rows[rows[chosen].notna()]
    key = [spec.key] if spec.key and rows[spec.key].nunique() > 1 else []
    axes = [name for name in rows.columns if name in _row_axes(rows, spec)]
    short = {chosen: "score"} | {f"{chosen}_{suffix}": title for suffix, title in SHORT.items()}
    columns = [*key, *axes, *(name for name in short if name in rows)]
    ranked = rows[columns].rename(columns=short)
    if by not in ranked or by in (*key, *axes):
        raise ArgumentError(f"by={by!r} is not a column to rank by; it is one of {', '.join(short.values())}")
    order = ranked[by].abs() if by == "z" and schema.two_sided else ranked[by]
    places = order.sort_values(ascending=by in ("p", "q"), kind="stable", na_position="last").index
    return ranked.loc[places].reset_index(drop=True)


def summary(data: xr.DataTree, null: str | None = None) -> dict[str, dict[str, Any]]:
    """Single numbers and texts of every node, by node; under one null where there are several."""
    found = {}
    for name, dataset in nodes_of(data).items():
        plain = _under(dataset, null)
        scalars = {str(key): value.values.item() for key, value in plain.data_vars.items() if value.ndim == 0}
        if scalars:
            found[name] = scalars
    return found


def _under(dataset: xr.Dataset, null: str | None) -> xr.Dataset:
    """The dataset under one null; the first it has by default."""
    if NULL_DIM not in dataset.dims:
        return dataset
    known = [str(name) for name in dataset[NULL_DIM].values]
    if null is not None and null not in known:
        raise ArgumentError(f"null {null!r} is not in this result; it has {', '.join(known)}")
    return dataset.isel({NULL_DIM: 0 if null is None else known.index(null)}, drop=True)


def _node_rows(dataset: xr.Dataset, spec: Table, axes: dict[str, Any]) -> pd.DataFrame | None:
    """The rows of one node; the columns of its axes are added to `axes` with their types."""
    like = [name for name in spec.like if name in dataset]
    if not like:
        return None
    dims = dataset[like[0]].dims
    sizes = {dim: dataset.sizes[dim] for dim in dims}
    columns = axis_columns(dataset, sizes)
    axes.update({name: column.dtype for name, column in columns.items()})
    for name, variable in dataset.data_vars.items():
        if _belongs(str(name), variable.dims, dims, dataset, spec):
            columns[str(name)] = spread(variable.variable, sizes)
    rows = pd.DataFrame(columns)
    known = rows[[name for name in like if name in rows]]
    return rows[known.notna().any(axis=1)] if len(dims) else rows


def _belongs(name: str, own: Sequence[Any], dims: Sequence[Any], dataset: xr.Dataset, spec: Table) -> bool:
    """Whether a variable is a column: it has all the axes, or it goes with one that has."""
    if name in spec.without:
        return False
    if set(own) == set(dims) or name in spec.also:
        return set(own) <= set(dims)
    parent = next((name.removesuffix(f"_{s}") for s in DERIVED if name.endswith(f"_{s}")), "")
    return set(own) <= set(dims) and parent in dataset and set(dataset[parent].dims) == set(dims)


def axis_columns(dataset: xr.Dataset, sizes: dict[Any, int]) -> dict[str, np.ndarray]:
    """For every axis its coordinate and what lies beside it; an axis that only counts has no column."""
    columns: dict[str, np.ndarray] = {}
    for dim in sizes:
        beside = [str(name) for name, one in dataset.coords.items() if one.dims == (dim,)]
        named = [name for name in beside if name == dim] + [name for name in beside if name != dim]
        if not named:
            columns[str(dim)] = spread(xr.Variable(dim, np.arange(sizes[dim])), sizes)
        for name in named:
            columns[name] = spread(dataset[name].variable, sizes)
    return columns


def spread(variable: xr.Variable, sizes: dict[Any, int]) -> np.ndarray:
    """A variable along all axes, flat, in the order of nested loops over them."""
    own = [axis for axis in sizes if axis in variable.dims]
    shape = [size if axis in own else 1 for axis, size in sizes.items()]
    return np.broadcast_to(variable.transpose(*own).values.reshape(shape), list(sizes.values())).ravel()


def _row_axes(rows: pd.DataFrame, spec: Table) -> list[str]:
    """The columns that name a row: labels where there are any, else all before the first number."""
    first = min((list(rows.columns).index(name) for name in spec.like if name in rows), default=0)
    before = [name for name in rows.columns[:first] if name != spec.key]
    return [name for name in before if not name.endswith(("_layer", "_index"))]
