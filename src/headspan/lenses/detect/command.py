"""`headspan detect`: which heads do what when the model runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery
from headspan.cli.figure_files import image_files

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 5

TextFile = Annotated[Path | None, typer.Option("--text", help="Also score heads on the text of this file, in pieces.")]
SegmentLength = Annotated[
    int | None,
    typer.Option(
        "--length", help="Tokens of a random segment, which is said twice; by default 32.", show_default=False
    ),
]
WeightsOnly = Annotated[
    bool, typer.Option("--weights-only", help="Only the identity score of the weights; runs nothing.")
]


def detect(
    model: shared.Model,
    text: TextFile = None,
    threshold: Annotated[float, typer.Option(help="A head above this score is labelled.")] = 0.4,
    length: SegmentLength = None,
    batch: Annotated[int, typer.Option(help="Segments per draw.")] = 4,
    seeds: Annotated[int, typer.Option(help="How many draws; standard errors are over these.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the first draw.")] = 0,
    weights_only: WeightsOnly = False,
    output: shared.Output = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Find previous-token, duplicate-token, induction, identity and first-token heads by running the model."""
    from headspan.checkpoint import open_checkpoint
    from headspan.cli.prompts import file_text
    from headspan.lenses import detect as lens
    from headspan.runtime import open_runnable

    to = delivery("detect", output, image_files(figures, figure_format, dark), as_json)
    texts = None if text is None else [file_text(text)]
    checkpoint = open_checkpoint(model, config)
    if weights_only:
        result = lens.weights_only(checkpoint.heads(stack=stack))
    else:
        running = open_runnable(checkpoint, stack=stack)
        result = lens.compute(
            running, texts=texts, threshold=threshold, length=length, batch=batch, seeds=seeds, seed=seed
        )
    to.deliver(result, lens, _print)


def _print(result: xr.Dataset) -> None:
    """The strongest heads of every detector, labelled ones marked, then identity from the weights."""
    from headspan.cli.tables import print_table
    from headspan.lenses import detect as lens

    rows = lens.table(result)
    if "score" in result:
        prompts = [str(prompt) for prompt in result["prompt"].values]
        print_table(
            f"Strongest heads per detector, score ± standard error; * above {result.attrs['threshold']}",
            ["prompt", "detector", "chance", "heads"],
            [_detector_row(rows, prompt, str(name)) for prompt in prompts for name in result["detector"].values],
        )
    weights = rows[rows["prompt"] == "weights"].sort_values("score").dropna(subset="score")
    sd = float(result["identity_weights_sd"])
    ends = [*weights.head(SHOWN).itertuples(), *weights.tail(min(SHOWN, len(weights) - SHOWN)).itertuples()]
    print_table(
        f"Identity from the weights, lowest and highest of {len(weights)} heads; by chance 0 ± {sd:.4f}",
        ["head", "score", "z"],
        [[row.head, f"{row.score:+.3f}", f"{row.z:+.1f}"] for row in ends],
    )


def _detector_row(rows: object, prompt: str, detector: str) -> list[str]:
    import pandas as pd

    table = pd.DataFrame(rows)
    here = table[(table["prompt"] == prompt) & (table["detector"] == detector)].dropna(subset="score")
    if here.empty:
        return [prompt, detector, "-", "nothing to see in these prompts"]
    best = here.sort_values("score", ascending=False, kind="stable").head(SHOWN)
    named = [f"{r.head} {r.score:.2f}±{r.standard_error:.2f}{'*' if r.label else ''}" for r in best.itertuples()]
    more = int(here["label"].eq(True).sum()) - SHOWN
    return [
        prompt,
        detector,
        f"{here['chance'].iloc[0]:.3f}",
        ", ".join(named) + (f", {more} more*" if more > 0 else ""),
    ]
