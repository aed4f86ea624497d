"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help='A checkpoint folder, a weight file, or "demo" for the model inside the package.'
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The model's config.json, for a weight file that has none beside it.")
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
