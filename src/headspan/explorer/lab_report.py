"""The lab's section of a report, and the report of a trained model with that section in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from headspan.atomic import check_writable
from headspan.explorer.assembly import ExtraSection
from headspan.explorer.figure_block import figure_blocks
from headspan.explorer.findings_section import finding_block
from headspan.explorer.html import Markup, element, facts, section, table
from headspan.explorer.reports import write_report
from headspan.explorer.store import Store
from headspan.finding import Finding
from headspan.lab.ablation import over_seeds
from headspan.lab.figures import figures
from headspan.lab.findings import findings
from headspan.lab.session import Run
from headspan.lab.studies import STUDIES
from headspan.lab.study import lags_over_seeds, study
from headspan.lab.study_findings import study_findings
from headspan.lenses.model import open_model

TITLE = "How it learned"


def write_lab_report(runs: Sequence[Run], path: Path, progress: Callable[[str], None] = lambda title: None) -> Path:
    """The ordinary report of the trained model (of the first run, if there are several) with the lab's section in it.

    Parameters
    ----------
    runs
        Finished runs of one recipe.
    path
        The HTML file to write, whole or not at all.
    progress
        Called with the title of each part before it is computed.
    """
    check_writable(path)
    progress("Training")
    section_of_lab = lab_section(runs)
    model = open_model(str(runs[0].folder.model_folder))
    return write_report(model, path, progress=progress, extra_sections=[section_of_lab])


def lab_section(runs: Sequence[Run]) -> ExtraSection:
    """What training shows: the runs as a table, answers over all of them, then each run's findings and figures."""
    studies = [study(run.folder.path) for run in runs]
    found = [findings(one) for one in studies]
    answers = _answers(studies)

    def body(store: Store) -> Markup:
        return section(
            "lab",
            TITLE,
            element("p", "How the model came to be: its training run, with perturbations and controls."),
            *_overview(runs, studies),
            *map(finding_block, answers),
            *(part for each in zip(runs, studies, found, strict=True) for part in _run_parts(*each, store)),
            element("h3", "Recipe"),
            _provenance(runs[0]),
        )

    return ExtraSection("lab", TITLE, body, [*answers, *found[0]])


def _answers(studies: Sequence[xr.DataTree]) -> list[Finding]:
    """What studies that were kept with the runs say over all of them."""
    kept = {
        name: [one.children[f"study_{name}"].to_dataset(inherit=False) for one in studies
               if f"study_{name}" in one.children]
        for name in STUDIES
    }  # fmt: skip
    return [finding for name, those in kept.items() for finding in study_findings(name, those)]


def _overview(runs: Sequence[Run], studies: Sequence[xr.DataTree]) -> list[Markup]:
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
    return blocks


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


def _run_parts(run: Run, one: xr.DataTree, found: Sequence[Finding], store: Store) -> list[Markup]:
    reasons = {str(key): text for key, text in one.attrs.items() if str(key).endswith("_left_out")}
    notes = [
        element("p", f"Left out: {key.removesuffix('_left_out')}: {text}.", class_="evidence")
        for key, text in reasons.items()
    ]
    title = element("h3", f"Run with seed {run.recipe.seed}")
    blocks = figure_blocks(figures(one), store, f"lab-{run.recipe.seed}")
    return [title, *map(finding_block, found), *blocks, *notes]


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
