"""`headspan train`: train small models and watch their subspaces form. Settings beyond a preset go by their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli.arguments import AsJSON

if TYPE_CHECKING:
    from headspan.lab.recipe import Recipe
    from headspan.lab.session import Run


def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help="copying, addition or text.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of the run; the same command takes it up again.")
    ],
    preset: Annotated[str, typer.Option(help="default, fast, smoke or published.")] = "default",
    seed: Annotated[int, typer.Option(help="Fixes weights, data and dropout.")] = 0,
    seeds: Annotated[str | None, typer.Option(help="Several runs, such as 0..9 or 0,3,5.", show_default=False)] = None,
    steps: Annotated[int | None, typer.Option(help="How long; the preset says by default.", show_default=False)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting, such as positions=learned, layers=1, learning_rate=1e-3; repeatable."),
    ] = None,
    text: Annotated[Path | None, typer.Option(help="The file of the task text.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json for it; bytes by default.")] = None,
    lenses: Annotated[
        bool, typer.Option("--lenses", help="Also run the lenses on every kept checkpoint (lenses.nc).")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Also perturb the model and write report.html into the folder.")
    ] = False,
    as_json: AsJSON = False,
) -> None:
    """Train a small transformer to copy, watch its subspaces, and say what it learned when."""
    chosen = [*(settings or []), *([] if steps is None else [f"steps={steps}"])]
    recipe = _recipe(task, preset, text, tokenizer, chosen)
    runs, document = _trained(recipe, output, seed, seeds)
    if lenses:
        _write_lenses(runs)
    if report:
        document = {**document, "report": _write_report(runs, output)}
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    _print(document, [run.result for run in runs])


def _recipe(task: str, preset: str, text: Path | None, tokenizer: Path | None, settings: list[str]) -> Recipe:
    from headspan.errors import HeadspanError
    from headspan.lab import recipe as recipes
    from headspan.lab.task import KINDS

    if task not in KINDS:
        raise HeadspanError(f"there is no task {task!r}; tasks are {', '.join(KINDS)}")
    if task != "text" and text is not None:
        raise HeadspanError(f"--text goes with the task text, not with {task}")
    recipe = recipes.preset(preset)
    if task == "addition":
        recipe = recipes.ADDITION
    elif task == "text":
        if text is None:
            raise HeadspanError("the task text needs a file: --text FILE")
        recipe = recipes.text_recipe(text, tokenizer)
    return recipe.changed(**recipes.parsed_settings(settings))


def _trained(recipe: Recipe, output: Path, seed: int, seeds: str | None) -> tuple[list[Run], dict[str, Any]]:
    """One run or several, and what JSON says of them."""
    from headspan.lab.progress_view import live_view
    from headspan.lab.session import parsed_seeds, run_once, run_seeds
    from headspan.lenses.saving import without_nan

    if seeds is not None:
        return run_seeds(recipe, parsed_seeds(seeds), output, live_view)
    run = run_once(recipe.changed(seed=seed), output, live_view)
    return [run], without_nan(run.result)


def _write_lenses(runs: list[Run]) -> None:
    from headspan.lab.lens_series import lens_series, write_series

    for run in runs:
        write_series(lens_series(run.folder.checkpoints()), run.folder.path / "lenses.nc")


def _write_report(runs: list[Run], output: Path) -> str:
    from headspan.report.lab_report import write_lab_report

    return str(write_lab_report(runs, output / "report.html"))


def _print(document: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """One line per run; over several seeds also how many learned."""
    from headspan.cli.tables import print_table

    columns = ("seed", "steps", "ID accuracy", "OOD accuracy", "transition", "model")
    rows = [
        (
            str(one["seed"]),
            str(one["steps"]),
            f"{one['id_accuracy']:.3f}",
            f"{one['ood_accuracy']:.3f}",
            _transition(one),
            one["paths"]["model"],
        )
        for one in results
    ]
    print_table("Training runs", columns, rows)
    if "success_rate" in document:
        typer.echo(f"Learned (OOD accuracy above 0.9): {document['success_rate']:.0%} of {len(results)} seeds")
    if "report" in document:
        typer.echo(f"Report written to {document['report']}")


def _transition(result: dict[str, Any]) -> str:
    if result["transition_step"] != result["transition_step"]:
        return "none"
    return f"{result['transition_step']:.0f} ({result['transition_low']:.0f} to {result['transition_high']:.0f})"
