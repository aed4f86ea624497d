"""Options that commands share, each declared once: the text of `--help`, the spelling, the type.

A parameter of a lens's function that bears one of these names is this option on the command line, with the default that
the function gives it. `typer` reads options from a function's signature; `headspan.cli.lens_commands` writes that
signature out of these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headspan.command import Option

MODEL_HELP = (
    'A checkpoint folder, a weight file, a name on the Hub (org/name, org/name@revision), "demo", '
    "or synthetic:SHAPE?seed=1."
)

MEMORY_HELP = "Most memory that the whole process may take, such as 4GB; what cannot be cut to fit is refused."

SHARED = {
    "pairings": Option("Pairings such as OQ,OK,OV (the default), or all.", names=("--pairings", "--pairing")),
    "metrics": Option("Scores to compute, separated by commas.", names=("--metrics", "--metric")),
    "null": Option("The null distribution that expected values, z, p and q are shown for."),
    "delta": Option("For rotary models: positions from key to query at which W_Q W_K^T is taken.", int),
    "memory": Option(MEMORY_HELP),
    "seed": Option("Random seed; the same seed gives the same result.", int),
    "draws": Option("How many random draws the null is estimated from.", int),
    "noise": Option("The random change that a change is compared with: gaussian or rounding.", str),
    "tolerance": Option("Singular values up to this share of the largest count as zero.", float),
    "leading": Option("Follow this many leading directions of each head instead of its whole span.", int),
    "truncate": Option("Cut a prompt that exceeds the context.", bool),
    "top": Option("How many rows to show.", int),
}
"""Parameters of lenses and of what they print."""

OPENING = {
    "config": Option("The model's config.json, for a weight file that has none beside it.", Path),
    "stack": Option("Which stack, for a model with several: encoder, decoder, cross, text or vision.", str),
    "fold": Option('Weights as stored ("none") or with the norm folded in ("layernorm").', str),
    "dtype": Option("Precision to compute in: float32 or float64.", str),
    "device": Option("Where to compute: cpu, cuda or cuda:1.", str),
    "time_limit": Option("Stop after so many seconds.", float),
    "memory": Option(MEMORY_HELP, str),
}
"""How a lens opens its subject."""
OPENING_DEFAULTS = {"fold": "none", "device": "cpu"}

PROMPT = {
    "prompt": Option("The text to run the model on.", str),
    "prompt_file": Option("A file with the text.", Path),
    "tokens": Option("Token ids such as 1,5,7 in place of text.", str),
}
"""Where a running model's prompt comes from: together the parameter `prompt` of a lens."""


def annotated(name: str, option: Option, default: Any) -> Any:
    """The annotation from which typer makes an option."""
    kind = option.type or (type(default) if default is not None else str)
    if kind is tuple or kind is list:
        kind = str
    spelled = option.names or (f"--{name.replace('_', '-')}",)
    optional = kind if default is not None else kind | None
    return Annotated[
        optional, typer.Option(*spelled, help=option.help, metavar=option.metavar, show_default=default is not None)
    ]


Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
ConfigFile = annotated("config", OPENING["config"], None)
Stack = annotated("stack", OPENING["stack"], None)
Fold = annotated("fold", OPENING["fold"], "none")
Memory = annotated("memory", SHARED["memory"], "4GB")
Seed = annotated("seed", SHARED["seed"], 0)
TimeLimit = annotated("time_limit", Option("Stop each analysis after so many seconds; the others go on.", float), None)

# Where a result goes; `headspan.cli.delivery` takes it there.
Force = Annotated[bool, typer.Option("--force", help="Overwrite an output that is there already.")]
Figures = Annotated[
    Path | None, typer.Option("--figures", metavar="DIR", help="Also write the figures into this folder, as images.")
]
FigureFormat = Annotated[str, typer.Option("--figure-format", help="svg, png or pdf (needs kaleido and chromium).")]
Dark = Annotated[bool, typer.Option("--dark", help="Figures for a dark page.")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def output(endings: tuple[str, ...]) -> Any:
    """`-o FILE`, with the endings that a command knows."""
    listed = f"{', '.join(endings[:-1])} or {endings[-1]}"
    return Annotated[
        Path | None, typer.Option("-o", "--output", help=f"Also write the result; the ending says how: {listed}.")
    ]
