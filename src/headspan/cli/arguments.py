"""Arguments that several commands share, each with the one text that `--help` shows for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help='A checkpoint folder, a weight file, a name on the Hub (org/name, org/name@revision), "demo", '
        "or synthetic:SHAPE?seed=1.",
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The model's config.json, for a weight file that has none beside it.")
]
Stack = Annotated[
    str | None,
    typer.Option("--stack", help="Which stack, for a model with several: encoder, decoder, cross, text or vision."),
]
Fold = Annotated[
    str, typer.Option("--fold", help='Weights as stored ("none") or with the norm folded in ("layernorm").')
]
Delta = Annotated[
    int, typer.Option("--delta", help="For rotary models: positions from key to query at which W_Q W_K^T is taken.")
]
Memory = Annotated[
    str,
    typer.Option("--memory", help="Most memory that the whole process may take, such as 4GB; work is cut to fit."),
]
Seed = Annotated[int, typer.Option("--seed", help="Fixes all that is drawn at random; the same seed, the same result.")]

# What a running model is given to read.
PromptText = Annotated[str | None, typer.Option("--prompt", help="The text to run the model on.")]
PromptFile = Annotated[Path | None, typer.Option("--prompt-file", help="A file with the text.")]
TokenIds = Annotated[str | None, typer.Option("--tokens", help="Token ids such as 1,5,7 in place of text.")]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut a prompt that exceeds the context.")]

# Where a result goes; `headspan.cli.delivery` takes it there.
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Also write the result; the ending says how: .nc, .csv, .parquet or .json."),
]
OutputOrPage = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="Also write the result; the ending says how: .nc, .csv, .parquet, .json, or .html for a page of figures.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an output that is there already.")]
Figures = Annotated[
    Path | None, typer.Option("--figures", metavar="DIR", help="Also write the figures into this folder, as images.")
]
FigureFormat = Annotated[str, typer.Option("--figure-format", help="svg, png or pdf (needs kaleido and chromium).")]
Dark = Annotated[bool, typer.Option("--dark", help="Figures for a dark page.")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
