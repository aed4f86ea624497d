"""`headspan train`: train small models and watch their subspaces form. Settings beyond a preset go by their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli import options as shared
from headspan.cli.delivery import print_json
from headspan.finding import percent

if TYPE_CHECKING:
    from headspan.lab.recipe import Recipe
    from headspan.lab.session import Run

RunFolder = Annotated[Path, typer.Option("-o", "--output", help="Folder of the run; the same command resumes it.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting, such as positions=learned, layers=1, learning_rate=1e-3; repeatable."),
]
WithLenses = Annotated[
    bool, typer.Option("--lenses/--no-lenses", help="Run the lenses on kept checkpoints (lenses.nc).")
]
Studies = Annotated[
    list[str] | None,
    typer.Option(
        "--study",
        help="A question of its own: plateau (restarts along negative curvature), spectrum (Hessian density), "
        "channels (over training), adapter (a low-rank fine-tune), carry (in sums of digits), sparsity (of learned "
        "positions, by optimizer and gains) or lengths (longer sequences, by position scheme); repeatable.",
    ),
]
WithReport = Annotated[
    bool, typer.Option("--report", help="Also perturb the model and write its report.html into the folder.")
]


def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help="copying, addition or text.")],
    output: RunFolder,
    preset: Annotated[
        str,
        typer.Option(help="default, fast, smoke or published; of addition default, smoke, digits or scratchpad."),
    ] = "default",
    seed: Annotated[int, typer.Option(help="Fixes weights, data and dropout.")] = 0,
    seeds: Annotated[str | None, typer.Option(help="Several runs, such as 0..9 or 0,3,5.", show_default=False)] = None,
    steps: Annotated[int | None, typer.Option(help="How long; the preset says by default.", show_default=False)] = None,
    settings: Settings = None,
    text: Annotated[Path | None, typer.Option(help="The file of the task text.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json for it; bytes by default.")] = None,
    lenses: WithLenses = True,
    study: Studies = None,
    report: WithReport = False,
    as_json: shared.AsJSON = False,
) -> None:
    """Train a small transformer to copy, watch its subspaces, and say what it learned when."""
    chosen = [*(settings or []), *([] if steps is None else [f"steps={steps}"])]
    chosen += [] if lenses else ["lenses_every=0"]
    recipe = _recipe(task, preset, text, tokenizer, chosen)
    studies = _check_studies(study or [])
    runs, document = _train(recipe, output, seed, seeds)
    if studies:
        document = {**document, "studies": _run_studies(runs, studies)}
    if report:
        document = {**document, "report": _write_report(runs, output)}
    if as_json:
        print_json(document)
        return
    _print(document, [run.result for run in runs])


def _recipe(task: str, preset: str, text: Path | None, tokenizer: Path | None, settings: list[str]) -> Recipe:
    from headspan.errors import ArgumentError
    from headspan.lab import recipe as recipes
    from headspan.lab.settings import parse_settings
    from headspan.lab.task import KINDS

    if task not in KINDS:
        raise ArgumentError(f"there is no task {task!r}; tasks are {', '.join(KINDS)}")
    if task != "text" and text is not None:
        raise ArgumentError(f"--text goes with the task text, not with {task}")
    if task == "text":
        if text is None:
            raise ArgumentError("the task text needs a file: --text FILE")
        if preset != "default":
            raise ArgumentError(f"the task text has no presets, found --preset {preset}; use --set NAME=VALUE")
        recipe = recipes.text_recipe(text, tokenizer)
    else:
        recipe = recipes.preset(preset, task)
    return recipe.with_settings(**parse_settings(settings, recipes.SETTING_TYPES))


def _train(recipe: Recipe, output: Path, seed: int, seeds: str | None) -> tuple[list[Run], dict[str, Any]]:
    """One run or several, and what JSON says of them."""
    from headspan.lab.session import parse_seeds, run_once, run_seeds
    from headspan.storage import without_nan

    if seeds is not None:
        return run_seeds(recipe, parse_seeds(seeds), output, progress=True)
    run = run_once(recipe.with_settings(seed=seed), output, progress=True)
    return [run], without_nan(run.result)


def _check_studies(studies: list[str]) -> list[str]:
    """Names of studies, each once, known before any training is done."""
    if not studies:
        return []
    from headspan.lab.studies import check_study

    return [check_study(name) for name in dict.fromkeys(studies)]


def _run_studies(runs: list[Run], studies: list[str]) -> dict[str, Any]:
    """Each study made on every run, and its answer over all of them."""
    from headspan.lab.studies import keep_study
    from headspan.lab.study import study_file
    from headspan.lab.study_findings import study_findings

    found: dict[str, Any] = {}
    for name in studies:
        answers = study_findings(name, [keep_study(name, run.folder.path) for run in runs])
        files = [str(study_file(run.folder.path, name)) for run in runs]
        found[name] = {"answers": [answer.statement for answer in answers], "paths": files}
    return found


def _write_report(runs: list[Run], output: Path) -> str:
    from headspan.explorer.lab_report import write_lab_report

    return str(write_lab_report(runs, output / "report.html", lambda title: typer.echo(f"{title} ...", err=True)))


def _print(document: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """One line per run; over several seeds also how many learned."""
    from headspan.cli.delivery import print_table

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
        typer.echo(f"Learned (OOD accuracy above 0.9): {percent(document['success_rate'])} of {len(results)} seeds")
    for answer in (text for one in document.get("studies", {}).values() for text in one["answers"]):
        typer.echo(answer)
    if "report" in document:
        typer.echo(f"Report written to {document['report']}")


def _transition(result: dict[str, Any]) -> str:
    if result["transition_step"] != result["transition_step"]:
        return "none"
    return f"{result['transition_step']:.0f} ({result['transition_low']:.0f} to {result['transition_high']:.0f})"
