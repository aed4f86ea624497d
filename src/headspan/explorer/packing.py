"""A result as a few plain arrays and a description of how they belong together, and back.

netCDF can hold every result too, but takes longer to write and read a tree of many small variables than most lenses
take to compute it. Here every array goes into one `.npz` as it is, and everything else into a JSON text beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

Result = xr.Dataset | xr.DataTree
STRUCTURE = "structure"


def write_packed(result: Result, path: Path) -> None:
    """Write a result to an `.npz` file."""
    nodes = (
        {node.path: node.to_dataset(inherit=False) for node in result.subtree} if _is_tree(result) else {"/": result}
    )
    arrays: dict[str, np.ndarray] = {}
    described = {place: _described(dataset, arrays) for place, dataset in nodes.items()}
    structure = {"tree": _is_tree(result), "nodes": described}
    arrays[STRUCTURE] = np.array(json.dumps(structure))
    np.savez(path, **arrays)  # type: ignore[arg-type]


def read_packed(path: Path) -> Result:
    """The result in an `.npz` file, equal to the one that was written."""
    with np.load(path, allow_pickle=False) as arrays:
        structure = json.loads(str(arrays[STRUCTURE]))
        nodes = {place: _dataset(about, arrays) for place, about in structure["nodes"].items()}
    return xr.DataTree.from_dict(nodes) if structure["tree"] else nodes["/"]


def _is_tree(result: Result) -> bool:
    return isinstance(result, xr.DataTree)


def _described(dataset: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The names, axes and attributes of a dataset; its values join `arrays`."""
    kinds = {"coords": dataset.coords, "data": dataset.data_vars}
    out: dict[str, Any] = {"attrs": _plain(dataset.attrs)}
    for kind, variables in kinds.items():
        out[kind] = {}
        for name, variable in variables.items():
            key = f"array{len(arrays)}"
            values = variable.values
            text = values.dtype.kind == "O"
            arrays[key] = values.astype(str) if text else values
            out[kind][str(name)] = {
                "dims": list(variable.dims),
                "array": key,
                "text": text,
                "attrs": _plain(variable.attrs),
            }
    return out


def _plain(attrs: Any) -> dict[str, Any]:
    return {str(name): value.item() if hasattr(value, "item") else value for name, value in attrs.items()}


def _dataset(about: dict[str, Any], arrays: Any) -> xr.Dataset:
    def variables(kind: str) -> dict[str, Any]:
        return {
            name: (
                one["dims"],
                arrays[one["array"]].astype(object) if one["text"] else arrays[one["array"]],
                one["attrs"],
            )
            for name, one in about[kind].items()
        }

    return xr.Dataset(variables("data"), coords=variables("coords"), attrs=about["attrs"])
