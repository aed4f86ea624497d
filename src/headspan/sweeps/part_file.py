"""One task's result as one file, written whole or not at all, the same bytes for the same result.

A part is a NumPy archive (.npz) of all variables of a result, with a header in JSON that names them: node, dims,
attributes. It is written to a temporary name, flushed to the disk, and renamed; a file that has its name is finished.
It holds no time and no name of a machine, so two workers that do the same task write the same bytes.

Why not Zarr here: a tree of 771 small variables takes 6 s of CPU time to write as Zarr and 0.04 s as one archive, while
the lens that makes it takes 0.1 s. Zarr is written once per series, of all its parts (`gathering`).
"""

from __future__ import annotations

import errno
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xarray as xr

from headspan.errors import HeadspanError, StoreError

SCHEMA = "headspan.sweep-part/1"
TEMPORARY = ".part-"
"""Beginning of the names of files that are not finished."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
OF_THE_SOURCE = ("model", "revision", "before_model", "before_revision")
"""Attributes that say where weights came from. A part belongs to the weights, wherever they lie."""


@dataclass(frozen=True)
class Part:
    """A result by node path (the root is ""), or the reason why there is none; and what was warned of."""

    nodes: Mapping[str, xr.Dataset] = field(default_factory=dict)
    left_out: str = ""
    warnings: Sequence[str] = ()


def nodes_of(result: xr.Dataset | xr.DataTree) -> dict[str, xr.Dataset]:
    """A lens's result as datasets by path, without the attributes of its source."""
    if isinstance(result, xr.Dataset):
        nodes = {"": result}
    else:
        nodes = {node.path.strip("/"): node.to_dataset(inherit=False) for node in result.subtree}
    kept = {path: node.drop_attrs(deep=False).assign_attrs(_own(node.attrs)) for path, node in nodes.items()}
    return {path: node for path, node in kept.items() if node.variables or node.attrs}


def _own(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in attributes.items() if name not in OF_THE_SOURCE}


def write_part(path: Path, part: Part) -> int:
    """Write a part under its final name; returns its size in bytes."""
    arrays: dict[str, Any] = {}
    nodes = {}
    for place, node in part.nodes.items():
        variables = {}
        for name, variable in node.variables.items():
            key = f"v{len(arrays)}"
            arrays[key] = _storable(variable.values, f"{place}/{name}")
            entry = {"key": key, "dims": list(variable.dims), "coord": name in node.coords}
            variables[str(name)] = {**entry, "attrs": variable.attrs}
        nodes[place] = {"attrs": node.attrs, "variables": variables}
    header = {"schema": SCHEMA, "left_out": part.left_out, "warnings": list(part.warnings), "nodes": nodes}
    text = json.dumps(header, default=_plain)
    with _finished(path) as file:
        np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    return path.stat().st_size


def write_text(path: Path, text: str) -> None:
    """Write a small text file in the same way."""
    with _finished(path) as file:
        file.write(f"{text}\n".encode())


@contextmanager
def _finished(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the name `path` if the block succeeds, all its bytes on the disk, and is removed if not."""
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as problem:
        message = f"cannot write '{path}': {problem.strerror or problem}"
        raise (StoreError if problem.errno in FULL else HeadspanError)(message) from problem
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_part(path: Path) -> Part:
    """A finished part; refused with its name if it is damaged or another version's."""
    try:
        # Opened here: np.load leaves a file that it opened itself open where the archive is damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            if header["schema"] != SCHEMA:
                raise StoreError(
                    f"the result '{path}' is in the format {header['schema']!r}, not {SCHEMA!r}; it was left as it "
                    "is: sweep into another store"
                )
            nodes = {place: _node(described, archive) for place, described in header["nodes"].items()}
            return Part(nodes, header["left_out"], header["warnings"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
        raise StoreError(
            f"the result '{path}' is damaged ({problem}); delete it and run the sweep again to compute it anew"
        ) from problem


def is_finished(path: Path) -> bool:
    """Whether a part is there with all its bytes: its table of contents, which is written last, can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "header.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _node(described: Mapping[str, Any], archive: Any) -> xr.Dataset:
    variables = {
        name: xr.Variable(entry["dims"], archive[entry["key"]], entry["attrs"])
        for name, entry in described["variables"].items()
    }
    coords = {name for name, entry in described["variables"].items() if entry["coord"]}
    return xr.Dataset(variables, attrs=described["attrs"]).set_coords(coords)


def _storable(values: np.ndarray, name: str) -> np.ndarray:
    """An array that loads without running code; text in arrays of objects becomes text of fixed width."""
    if values.dtype.kind not in "OT":
        return values
    if all(isinstance(value, str) for value in values.flat):
        return values.astype(np.str_)
    raise HeadspanError(
        f"the variable '{name}' holds Python objects, which a sweep cannot keep; numbers or text can be"
    )


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise HeadspanError(f"an attribute holds a {type(value).__name__}, which a sweep cannot keep")
