"""A result as files and as JSON: made from the schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspan import frames, storage
from headspan.atomic import check_writable, written_whole
from headspan.finding import Finding
from headspan.loading import uncollected
from headspan.storage import without_nan

if TYPE_CHECKING:
    import pandas as pd

    from headspan.result import Result

PAGE = "headspan.explorer.figures_page:write_figures_page"
"""What writes a result as a page; a lens's `command.py` may name another. By name, since pages are made of results."""


def write_result(result: Result, path: Path) -> Path:
    """Write a result in the form that the ending of `path` asks for, whole or not at all."""
    command = result.lens.part("command")
    writers: dict[str, Callable[[Path], Any]] = {
        ".nc": lambda target: storage.write_netcdf(result.data, target),
        ".csv": lambda target: result.table().to_csv(target, index=False),
        ".parquet": lambda target: storage.write_parquet(result.table(), target),
        ".json": lambda target: target.write_text(storage.json_text(result.to_json()) + "\n", encoding="utf-8"),
        ".html": lambda target: _page_writer(getattr(command, "PAGE", PAGE))(result, target),
        **{ending: partial(write, result) for ending, write in getattr(command, "ENDINGS", {}).items()},
    }
    check_writable(path, tuple(writers))
    with written_whole(path) as temporary:
        writers[path.suffix](temporary)
    return path


def _page_writer(name: str) -> Callable[[Result, Path], None]:
    module, _, function = name.partition(":")
    with uncollected():
        found: Callable[[Result, Path], None] = getattr(import_module(module), function)
    return found


def finding_record(finding: Finding) -> dict[str, Any]:
    """A finding as plain values, without what is empty."""
    return {name: value for name, value in asdict(finding).items() if value not in (None, "")}


def document(result: Result, top: int | None = None, null: str | None = None) -> dict[str, Any]:
    """`{"schema", "provenance", "findings", "summary" or one entry per node, and every table as a list of records}`."""
    schema, data = result.lens.schema, result.data
    numbers = frames.summary(data, null)
    key = next((spec.key for spec in schema.tables if spec.key), "")
    nodes = {name: found for name, found in numbers.items() if name}
    found: dict[str, Any] = {
        "schema": f"headspan.{result.lens.name}/{schema.version}",
        "provenance": {name: value for name, value in result.attrs.items() if name != "schema"},
        "findings": [finding_record(finding) for finding in result.findings],
    }
    if "" in numbers:
        found["summary"] = numbers[""]
    if nodes:
        # Where the first table has this name, it holds these numbers too and takes their place.
        deep = any("/" in name for name in nodes)
        found["nodes" if deep else "matrices" if key == "matrix" else f"{key or 'node'}s"] = nodes
    for place, spec in enumerate(spec for spec in schema.tables if frames.has_table(data, spec)):
        rows = frames.table(schema, data, spec, null)[: spec.most]
        found[spec.name] = records(rows if top is None or place else _strongest(rows, schema.metrics, spec.key, top))
    if schema.arrays:
        root = data.to_dataset()
        found["arrays"] = {name: root[name].values.tolist() for name in schema.arrays if name in root}
    plain: dict[str, Any] = without_nan(found)
    return plain


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values; what is absent is None."""
    plain = rows.astype(object).where(rows.notna(), None)
    listed: list[dict[str, Any]] = plain.to_dict(orient="records")
    return listed


def _strongest(rows: pd.DataFrame, metrics: tuple[str, ...], key: str, top: int) -> pd.DataFrame:
    """The rows that are among the `top` of any metric, within each node; in the order of the first metric."""
    there = [name for name in metrics if name in rows]
    if not there:
        return rows
    groups = [part for _, part in rows.groupby(key, sort=False)] if key in rows else [rows]
    chosen = {place for part in groups for name in there for place in part[name].nlargest(top).index}
    kept = rows.loc[sorted(chosen)]
    order = [key, there[0]] if key in kept else [there[0]]
    return kept.sort_values(order, ascending=[True, False][-len(order) :], kind="stable").reset_index(drop=True)
