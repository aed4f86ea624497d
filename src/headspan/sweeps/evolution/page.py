"""The course of training as one HTML page that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from headspan.atomic import written_whole
from headspan.explorer.figure_block import drawing_scripts, figure_blocks
from headspan.explorer.findings_section import finding_block
from headspan.explorer.html import Markup, element, facts, section, table
from headspan.explorer.page import page
from headspan.figures import figures_of
from headspan.finding import Finding

METHOD = (
    "Every quantity is the mean of a lens's result over layers and heads at each checkpoint. A change point is "
    "the middle of a smooth step fitted to its curve; it counts if the step explains more of the curve than of 95 "
    "% of random walks on the same steps. Drift compares each checkpoint with the one before it. An edge appears "
    "at the first step from which on its pair of heads stands out at every step: from the pairs of the same model in "
    "the order that cannot compose, or, in models with few of them, from subspaces in general position."
)


def write_page(result: xr.DataTree, found: Sequence[Finding], path: Path) -> Path:
    """Write findings, figures and checkpoints of a course of training to `path`, whole or not at all."""
    body = {
        "evolution": section(
            "evolution", "What changes, and when", *(finding_block(one, linked=False) for one in found)
        ),
        "figures": section("figures", "Over the steps", *figure_blocks(figures_of("evolution", result))),
        "checkpoints": section("checkpoints", "Checkpoints", *_checkpoints(result)),
        "methods": section("methods", "How it is measured", element("p", METHOD)),
        "provenance": section("provenance", "Where these numbers come from", _provenance(result)),
    }
    contents = {
        "evolution": "Findings",
        "figures": "Figures",
        "checkpoints": "Checkpoints",
        "methods": "Methods",
        "provenance": "Provenance",
    }
    models = [str(node.attrs["model"]) for node in result.children.values()]
    title = models[0] if len(models) == 1 else f"{len(models)} models"
    steps = sum(node["checkpoints"].sizes["step"] for node in result.children.values())
    document = page(title, f"Course of training: {steps} checkpoints", contents, list(body.values()), drawing_scripts())
    with written_whole(path) as temporary:
        temporary.write_text(document, encoding="utf-8")
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
