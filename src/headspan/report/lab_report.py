"""The lab's section: a training run, or several, as one HTML page.

What stands out, the runs as a table, then one section per run with its findings and figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from headspan.atomic import check_writable, written_whole
from headspan.figures import figures_of
from headspan.finding import Finding
from headspan.findings import findings_of
from headspan.lab.ablation import over_seeds
from headspan.lab.session import Run
from headspan.lab.study import study
from headspan.lab.transition import lags_over_seeds
from headspan.report.figure_block import drawing_scripts, figure_blocks
from headspan.report.findings_section import finding_block
from headspan.report.html import Markup, element, facts, section, table
from headspan.report.page import page


def write_lab_report(runs: Sequence[Run], path: Path) -> Path:
    """Study every run and write the page to `path`, whole or not at all."""
    check_writable(path)
    studies = [study(run.folder.path) for run in runs]
    found = [findings_of("lab", one) for one in studies]
    names = [f"seed {run.recipe.seed}" for run in runs]
    sections = {
        "lab": _overview(runs, studies),
        **{
            f"run-{place}": _run_section(place, names[place], studies[place], found[place])
            for place in range(len(runs))
        },
        "provenance": section("provenance", "Where these numbers come from", _provenance(runs[0])),
    }
    titles = {"lab": "Runs", "provenance": "Provenance"}
    contents = {key: titles.get(key) or names[int(key.removeprefix("run-"))] for key in sections}
    shape = runs[0].recipe.shape
    subtitle = f"{runs[0].recipe.task.kind}: {shape.layers} layers of {shape.heads} heads, d_model {shape.d_model}"
    document = page("Training run", subtitle, contents, list(sections.values()), drawing_scripts())
    with written_whole(path) as temporary:
        temporary.write_text(document, encoding="utf-8")
    return path


def _overview(runs: Sequence[Run], studies: Sequence[xr.DataTree]) -> Markup:
    columns = ("seed", "steps", "id_accuracy", "ood_accuracy", "transition_step")
    rows = [[_cell(run.result[name]) for name in columns] for run in runs]
    blocks = [table([name.replace("_", " ") for name in columns], rows)]
    lags = [_lags(one) for one in studies if "transition" in one.children]
    if len(lags) > 1:
        means = lags_over_seeds(lags)
        rows = [[name, _cell(mean), _interval(low, high)] for name, (mean, low, high) in means.items()]
        blocks += [
            element("h3", "Steps after (or, negative, before) the transition, mean over seeds and 95 % interval")
        ]
        blocks += [table(["quantity", "mean", "interval"], rows)]
    tables = [one.children["ablation"].to_dataset(inherit=False) for one in studies if "ablation" in one.children]
    if len(tables) > 1:
        title = f"OOD accuracy after a removal, mean over {len(tables)} seeds (95 % interval; random control)"
        blocks += [element("h3", title)]
        blocks += [_ablations(over_seeds(tables))]
    return section("lab", "Runs", *blocks)


def _ablations(joined: xr.Dataset) -> Markup:
    """Sites by spaces; each cell the mean, its interval, and the mean of random subspaces of the same dimension."""

    def cell(space: str, site: str) -> str:
        here = joined.sel(space=space, site=site)
        mean, low, high = (float(here[f"accuracy_{end}"]) for end in ("mean", "low", "high"))
        return f"{mean:.2f} ({low:.2f} to {high:.2f}; {float(here['accuracy_control_mean']):.2f})"

    spaces = [str(space) for space in joined["space"].values]
    rows = [[str(site), *(cell(space, str(site)) for space in spaces)] for site in joined["site"].values]
    return table(["out of", *spaces], rows)


def _lags(one: xr.DataTree) -> dict[str, float]:
    node = one.children["transition"].to_dataset(inherit=False)
    return dict(zip(map(str, node["quantity"].values), map(float, node["lag"].values), strict=True))


def _run_section(place: int, name: str, one: xr.DataTree, found: Sequence[Finding]) -> Markup:
    reasons = {str(key): text for key, text in one.attrs.items() if str(key).endswith("_left_out")}
    notes = [
        element("p", f"Left out: {key.removesuffix('_left_out')}: {text}.", class_="evidence")
        for key, text in reasons.items()
    ]
    return section(
        f"run-{place}", f"Run with {name}", *map(finding_block, found), *figure_blocks(figures_of("lab", one)), *notes
    )


def _provenance(run: Run) -> Markup:
    record: dict[str, Any] = run.recipe.record()
    flat = {key: value for key, value in record.items() if not isinstance(value, dict)}
    return facts((key, str(value)) for key, value in {**record["task"], **record["shape"], **flat}.items())


def _interval(low: float, high: float) -> str:
    return "-" if low != low else f"{_cell(low)} to {_cell(high)}"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    return str(value)
