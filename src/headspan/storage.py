"""Results as files: netCDF for keeps, NumPy archives for the moment, tables and JSON for elsewhere.

- netCDF (.nc) holds a result with everything it says of itself.
- An archive (.npz) holds the same as plain arrays with a description in JSON. It is written and read in a hundredth of
  the time, the same bytes for the same result, without a time or the name of a machine in it; interrupted reports and
  sweeps keep their parts so.
- CSV, Parquet and JSON are for people and other programs.
"""

from __future__ import annotations

import io
import json
import math
import os
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import xarray as xr

from headspan.errors import HeadspanError
from headspan.input_files import LARGEST_STATE, check_regular, checked, file_bytes, json_object
from headspan.seal import check_archive, check_end, seal_end, seal_line, sealed_archive

ENGINE = "netcdf4"
"""A result has hundreds of small variables, for each of which h5netcdf spends two milliseconds of Python."""
IN_MEMORY = 256 * 2**20
"""Bytes of a result up to which its netCDF file is made in memory."""
_ORDER = "_order"
"""The attribute of a file that names the variables and parts at its root, one per line."""
_ONE_AT_A_TIME = threading.Lock()
"""The netCDF library is not meant for several threads."""
Nodes = Mapping[str, xr.Dataset]
"""Datasets by path in the tree; the root is ""."""


def write_netcdf(data: xr.DataTree, path: Path) -> None:
    """A tree as netCDF, numbers compressed.

    HDF5 ends the process where the disk is full, so it never meets one: it writes to memory or, where the result is
    large, to a disk on which as much room was found just before.
    """
    data = data.copy()
    data.attrs[_ORDER] = "\n".join([*map(str, data.to_dataset(inherit=False).variables), *data.children])
    encoding = {node.path: _compression(node.to_dataset(inherit=False)) for node in data.subtree}
    options: dict[str, Any] = {
        "engine": ENGINE,
        "encoding": {place: each for place, each in encoding.items() if each},
    }
    if data.nbytes <= IN_MEMORY:
        with _ONE_AT_A_TIME:
            content = data.to_netcdf(**options)
        content = bytes(content)
        path.write_bytes(content + seal_line(content))
        return
    with path.open("r+b" if path.exists() else "wb") as file:
        os.posix_fallocate(file.fileno(), 0, data.nbytes + IN_MEMORY)
        file.truncate(0)
    with _ONE_AT_A_TIME:
        data.to_netcdf(path, **options)
    seal_end(path)


def read_netcdf(path: Path) -> xr.DataTree:
    """The tree in a netCDF file, read whole."""
    check_regular(path, LARGEST_STATE)
    try:
        check_end(path)  # what HDF5 makes of damaged bytes can take for ever
        with _ONE_AT_A_TIME, xr.open_datatree(path, engine=ENGINE) as found:
            return _in_order(found.load())
    except Exception as problem:  # on damaged bytes HDF5's readers raise whatever they stumble over
        raise HeadspanError(f"'{path}' cannot be read as netCDF: {problem}") from problem


def _in_order(tree: xr.DataTree) -> xr.DataTree:
    """Variables and parts as they were written; the netCDF library sorts those at the root of a file made in memory."""
    order = str(tree.attrs.pop(_ORDER, "")).split("\n")
    root = tree.to_dataset(inherit=False)
    if set(order) == {*root.variables, *tree.children}:
        tree.dataset = root[[name for name in order if name in root.variables]]
        tree.children = {name: tree.children[name] for name in order if name in tree.children}
    return tree


def _compression(dataset: xr.Dataset) -> dict[Any, dict[str, Any]]:
    """Tables full of NaN and of repeated values compress well; single numbers cannot be compressed at all."""
    numeric = (name for name, values in dataset.data_vars.items() if values.ndim and values.dtype.kind in "fiub")
    return {name: {"zlib": True, "complevel": 4} for name in numeric}


def write_archive(file: Path | IO[bytes], nodes: Nodes, **header: Any) -> None:
    """Datasets by path as one NumPy archive, with further entries of its header."""
    arrays: dict[str, Any] = {}
    described = {}
    for place, node in nodes.items():
        variables = {}
        for name, variable in node.variables.items():
            key = f"v{len(arrays)}"
            arrays[key] = _storable(variable.values, f"{place}/{name}")
            entry = {"key": key, "dims": list(variable.dims), "coord": name in node.coords}
            variables[str(name)] = {**entry, "attrs": variable.attrs}
        described[place] = {"attrs": node.attrs, "variables": variables}
    text = json.dumps({**header, "nodes": described}, default=_plain)
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    content = sealed_archive(buffer.getvalue())
    file.write_bytes(content) if isinstance(file, Path) else file.write(content)


@dataclass(frozen=True)
class _Variable:
    """What an archive's header says of a variable."""

    key: str
    dims: list[str]
    coord: bool
    attrs: dict[str, Any]


@dataclass(frozen=True)
class _Node:
    """What an archive's header says of a node."""

    attrs: dict[str, Any]
    variables: dict[str, _Variable]


def read_archive(path: Path) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """The datasets of an archive by path, and the other entries of its header; refused where it is damaged."""
    content = file_bytes(path, LARGEST_STATE)
    try:
        check_archive(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            header = json_object(archive["header"].tobytes(), "its header")
            described = checked(header.pop("nodes", None), dict[str, _Node], "its nodes")
            return {place: _node(one, archive) for place, one in described.items()}, header
    except Exception as problem:  # on damaged bytes zipfile, numpy and xarray raise whatever they stumble over
        raise HeadspanError(f"'{path.name}' is damaged: {problem}") from problem


def archive_is_whole(path: Path) -> bool:
    """Whether an archive is there with all its bytes, as they were written.

    One of an older version has no checksum: its table of contents, which is written last, can be read.
    """
    try:
        content = file_bytes(path, LARGEST_STATE)
        if check_archive(content):
            return True
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return "header.npy" in archive.namelist()
    except (HeadspanError, OSError, zipfile.BadZipFile):
        return False


def _node(described: _Node, archive: Any) -> xr.Dataset:
    variables = {
        name: xr.Variable(entry.dims, archive[entry.key], entry.attrs) for name, entry in described.variables.items()
    }
    coords = {name for name, entry in described.variables.items() if entry.coord}
    return xr.Dataset(variables, attrs=described.attrs).set_coords(coords)


def _storable(values: np.ndarray, name: str) -> np.ndarray:
    """An array that loads without running code; text in arrays of objects becomes text of fixed width."""
    if values.dtype.kind not in "OT":
        return values
    if all(isinstance(value, str) for value in values.flat):
        return values.astype(np.str_)
    raise HeadspanError(f"the variable '{name}' holds Python objects; only numbers and text can be kept")


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise HeadspanError(f"an attribute holds a {type(value).__name__}; only numbers and text can be kept")


def json_text(document: Mapping[str, Any]) -> str:
    """JSON with NaN and infinities as null."""
    return json.dumps(without_nan(document), indent=2, allow_nan=False)


def without_nan(value: Any) -> Any:
    """The same structure of plain Python values, NaN and infinities as None."""
    if isinstance(value, Mapping):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_parquet(table: Any, path: Path) -> None:
    """A DataFrame as Parquet, which needs pyarrow."""
    try:
        table.to_parquet(path, index=False)
    except ImportError as problem:
        raise HeadspanError(
            "Parquet needs pyarrow: pip install 'headspan[parquet]', or write .csv instead"
        ) from problem
