"""The course of training as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray as xr

from headspan.finding import Finding
from headspan.storage import without_nan

POINT = ("change", "low", "high", "before", "after", "explained", "p_value", "q_value")
EDGE = ("src", "dst", "pairing", "appears", "vanishes", "from_start", "gain")


def as_json(result: xr.DataTree, found: Sequence[Finding] = ()) -> dict[str, Any]:
    """What `headspan evolution --json` prints: change points, edges, drift and spectra of every model."""
    models = {str(node.attrs["model"]): _model(node) for node in result.children.values()}
    document = {
        "schema": "headspan.evolution/1",
        "provenance": dict(result.attrs),
        "models": models,
        "findings": [vars(finding) for finding in found],
    }
    plain: dict[str, Any] = without_nan(document)
    return plain


def _model(node: xr.DataTree) -> dict[str, Any]:
    quantities = node["quantities"].to_dataset()
    points = quantities.isel(quantity=quantities["change"].notnull().values)
    described: dict[str, Any] = {
        "axis": node.attrs["axis"],
        "steps": quantities["step"].values.tolist(),
        "checkpoints": _rows(node["checkpoints"].to_dataset(), "step", ("source", "content_hash", "identical_to")),
        "change_points": _rows(points, "quantity", ("lens", "words", *POINT)),
    }
    if "wiring" in node.children:
        described["edges"] = _rows(node["wiring"].to_dataset(), "edge", (*EDGE, *POINT))
    for name in ("drift", "spectra"):
        if name in node.children:
            table = node[name].to_dataset()
            described[name] = {str(key): values.values.tolist() for key, values in table.variables.items()}
    return described


def _rows(dataset: xr.Dataset, dim: str, names: Sequence[str]) -> list[dict[str, Any]]:
    columns = {name: dataset[name].values.tolist() for name in names}
    if dim in dataset.coords:
        columns = {dim: dataset[dim].values.tolist(), **columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
