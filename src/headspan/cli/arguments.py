"""Arguments that several commands share."""

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
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Fold = Annotated[
    str, typer.Option("--fold", help='Weights as stored ("none") or with the norm folded in ("layernorm").')
]
Stack = Annotated[
    str | None,
    typer.Option("--stack", help="Which stack, for a model with several: encoder, decoder, cross, text or vision."),
]
Delta = Annotated[
    int, typer.Option("--delta", help="For rotary models: positions from key to query at which W_Q W_K^T is taken.")
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Also write the result; the ending says how (.nc, .csv, .json, ...)."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an output that is there already.")]
Memory = Annotated[
    str,
    typer.Option("--memory", help="Most memory that the whole process may take, such as 4GB; work is cut to fit."),
]
