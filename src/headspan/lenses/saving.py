"""Writing a result to a file, by the file's ending: netCDF, CSV, Parquet or JSON. Whole, or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from headspan.atomic import check_writable, written_whole
from headspan.errors import HeadspanError

Result = xr.Dataset | xr.DataTree
ENDINGS = (".nc", ".csv", ".parquet", ".json")
"""What every lens's result can be written as."""


def save_result(
    result: Any,
    path: Path,
    *,
    table: Callable[[Any], pd.DataFrame],
    as_json: Callable[[Any], dict[str, Any]],
    more: Mapping[str, Callable[[Path], None]] | None = None,
) -> None:
    """Write a lens's result in the form that the ending of `path` asks for.

    Parameters
    ----------
    result
        A Dataset or DataTree; written as it is to netCDF (.nc).
    path
        Where to; its ending is .nc, .csv, .parquet, .json, or one of `more`.
    table, as_json
        What a table and a JSON document of this result are.
    more
        Further endings of this lens, each with a writer.
    """
    writers: dict[str, Callable[[Path], None]] = {
        ".nc": lambda target: _write_netcdf(result, target),
        ".csv": lambda target: table(result).to_csv(target, index=False),
        ".parquet": lambda target: _write_parquet(table(result), target),
        ".json": lambda target: write_json(as_json(result), target),
        **(more or {}),
    }
    check_writable(path, list(writers))
    with written_whole(path) as temporary:
        writers[path.suffix](temporary)


def write_json(content: dict[str, Any], path: Path) -> None:
    """JSON with NaN as null."""
    path.write_text(json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def without_nan(value: Any) -> Any:
    """The same structure of plain Python values, NaN and infinities as None."""
    if isinstance(value, dict):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_netcdf(result: Result, path: Path) -> None:
    if isinstance(result, xr.DataTree):
        encoding = {node.path: _compression(node.to_dataset()) for node in result.subtree}
        result.to_netcdf(path, engine="h5netcdf", encoding={place: each for place, each in encoding.items() if each})
    else:
        result.to_netcdf(path, engine="h5netcdf", encoding=_compression(result))


def _compression(dataset: xr.Dataset) -> dict[Any, dict[str, Any]]:
    """Tables full of NaN and of repeated values compress well; single numbers cannot be compressed at all."""
    numeric = (name for name, values in dataset.data_vars.items() if values.ndim and values.dtype.kind in "fiub")
    return {name: {"zlib": True, "complevel": 4} for name in numeric}


def _write_parquet(table: pd.DataFrame, path: Path) -> None:
    try:
        table.to_parquet(path, index=False)
    except ImportError as problem:
        raise HeadspanError(
            "Parquet needs pyarrow: pip install 'headspan[parquet]', or write .csv instead"
        ) from problem
