"""A result as a JSON document, and as the view a notebook shows: made from the schema, the same for every lens."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from headspan import frames
from headspan.result import finding_record
from headspan.storage import without_nan

if TYPE_CHECKING:
    import pandas as pd

    from headspan.result import Result

ROWS = 5
"""Rows of the first table in a notebook's view."""


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


def notebook_view(result: Result) -> str:
    """The leading finding, the head of the first table and the first figure, as HTML that needs no network."""
    found, parts = result.findings, [f"<p><strong>{escape(result.title)}</strong></p>"]
    if found:
        parts.append(f"<p>{escape(found[0].statement)}</p>")
    if result.tables:
        ranked = result.lens.schema.metrics
        rows = result.top(ROWS) if ranked else result.table().head(ROWS)
        parts.append(rows.to_html(index=False, float_format=lambda value: f"{value:.4g}", escape=True))
    drawn = result.figures
    if drawn:
        parts.append(_figure(next(iter(drawn.values()))))
    return "".join(parts)


_drawn_before = False


def _figure(figure: Any) -> str:
    """A figure as HTML; the drawing library stands in the first one of a session and serves those after it."""
    global _drawn_before
    include, _drawn_before = not _drawn_before, True
    html: str = figure.to_html(full_html=False, include_plotlyjs=include)
    return html
