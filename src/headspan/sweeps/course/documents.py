"""The course of training as a JSON document, and as one HTML page that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from headspan.atomic import written_whole
from headspan.documents import finding_record, records
from headspan.explorer.figure_block import drawing_scripts, figure_blocks
from headspan.explorer.findings_section import finding_block
from headspan.explorer.html import Markup, element, facts, section, table
from headspan.explorer.page import page
from headspan.finding import Finding
from headspan.storage import without_nan
from headspan.sweeps.course.figures import figures

POINT = ("change", "change_kind", "low", "high", "before", "after", "explained", "change_p", "change_q")
EDGE = ("src", "dst", "pairing", "appears", "vanishes", "from_start", "gain")
METHOD = (
    "Every quantity is the mean of a lens's result over layers and heads at each checkpoint. A change point is "
    "an abrupt change of level or slope. It counts if such a change fits the curve better than every gradual curve, "
    "and by more than in 95 % of random walks on the same steps. Drift compares each checkpoint with the one before "
    "it. An edge appears at the first step from which on its pair of heads is significant at every step: under the "
    "reverse-order null (pairs of the same model in non-causal order) or, in models with few such pairs, under random "
    "subspaces."
)


def document(result: xr.DataTree, found: Sequence[Finding] = ()) -> dict[str, Any]:
    """What `headspan evolution --json` prints: change points, edges, movement of heads and spectra of every model."""
    plain: dict[str, Any] = without_nan(
        {
            "schema": "headspan.evolution/2",
            "provenance": dict(result.attrs),
            "models": {str(node.attrs["model"]): _model(node) for node in result.children.values()},
            "findings": [finding_record(finding) for finding in found],
        }
    )
    return plain


def _model(node: xr.DataTree) -> dict[str, Any]:
    quantities = node["quantities"].to_dataset()
    points = quantities.isel(quantity=quantities["change"].notnull().values)
    described: dict[str, Any] = {
        "axis": node.attrs["axis"],
        "steps": quantities["step"].values.tolist(),
        "checkpoints": _rows(node["checkpoints"].to_dataset(), ("source", "content_hash", "identical_to")),
        "change_points": _rows(points, ("lens", "words", *POINT)),
    }
    if "wiring" in node.children:
        described["edges"] = _rows(node["wiring"].to_dataset(), (*EDGE, *POINT))
    for name in ("movement", "matrices"):
        if name in node.children:
            numbers = node[name].to_dataset()
            described[name] = {str(key): values.values.tolist() for key, values in numbers.variables.items()}
    return described


def _rows(dataset: xr.Dataset, names: Sequence[str]) -> list[dict[str, Any]]:
    return records(dataset[list(names)].to_dataframe().reset_index())


def write_page(result: xr.DataTree, found: Sequence[Finding], path: Path) -> Path:
    """Write findings, figures and checkpoints of a course of training to `path`, whole or not at all."""
    sections = {
        "evolution": ("Findings", "What changes, and when", [finding_block(one, linked=False) for one in found]),
        "figures": ("Figures", "Over the steps", figure_blocks(figures(result))),
        "checkpoints": ("Checkpoints", "Checkpoints", _checkpoints(result)),
        "methods": ("Methods", "How it is measured", [element("p", METHOD)]),
        "provenance": ("Provenance", "Where these numbers come from", [_provenance(result)]),
    }
    body = [section(name, title, *blocks) for name, (_, title, blocks) in sections.items()]
    models = [str(node.attrs["model"]) for node in result.children.values()]
    title = models[0] if len(models) == 1 else f"{len(models)} models"
    steps = sum(node["checkpoints"].sizes["step"] for node in result.children.values())
    contents = {name: short for name, (short, _, _) in sections.items()}
    text = page(title, f"Course of training: {steps} checkpoints", contents, body, drawing_scripts())
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _checkpoints(result: xr.DataTree) -> list[Markup]:
    blocks = []
    for node in result.children.values():
        known = node["checkpoints"].to_dataset()
        columns = (known[name].values for name in ("step", "source", "content_hash", "identical_to"))
        rows = [
            [str(step), str(source), str(label)[:23], "" if same != same else f"step {same:.0f}"]
            for step, source, label, same in zip(*columns, strict=True)
        ]
        blocks += [element("h3", str(node.attrs["model"])), table(["step", "source", "content", "identical to"], rows)]
    return blocks


def _provenance(result: xr.DataTree) -> Markup:
    return facts((str(name), str(value)) for name, value in result.attrs.items() if str(value))
