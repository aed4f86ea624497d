"""The `headspan` command: its subcommands, and how errors reach the terminal."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from headspan._version import __version__
from headspan.cli import claims, compare, evolution, families, inspect, report, reproduce, sweep, train
from headspan.errors import HeadspanError, one_line
from headspan.lenses.affinity import command as _affinity
from headspan.lenses.affinity import pair_command as _pair
from headspan.lenses.affinity import tokens_command as _tokens
from headspan.lenses.attention import command as _attention
from headspan.lenses.detect import command as _detect
from headspan.lenses.gaussian import command as _gaussian
from headspan.lenses.intervene import command as _intervene
from headspan.lenses.positions import command as _positions
from headspan.lenses.similarity import command as _similarity
from headspan.lenses.spectra import command as _spectra
from headspan.lenses.validate import command as _validate

app = typer.Typer(
    help="The geometry of transformer weights: what every attention head can read and write.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("inspect")(inspect.inspect)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("affinity")(_affinity.affinity)
app.command("similarity")(_similarity.similarity)
app.command("spectra")(_spectra.spectra)
app.command("positions")(_positions.positions)
app.command("attention")(_attention.attention)
app.command("detect")(_detect.detect)
app.command("gaussian")(_gaussian.gaussian)
app.command("intervene")(_intervene.intervene)
app.command("validate")(_validate.validate)
app.command("pair")(_pair.pair)
app.command("tokens")(_tokens.tokens)
app.command("reproduce")(reproduce.reproduce)
app.command("train")(train.train)
app.command("sweep")(sweep.sweep)
app.command("evolution")(evolution.evolution)
app.command("families")(families.families)
app.command("claims")(claims.claims)

BAD_INPUT, INTERRUPTED = 2, 130


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headspan {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options that go before the name of a command."""
    # `debug` is read in `main`, where the error arrives; it is declared here so that --help lists it.


def _show_warning(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    """A warning as a line for the user, without the place in the code that gave it."""
    typer.echo(f"headspan: warning: {one_line(message)}", err=True)


def main() -> None:
    """Run the command line: an error on purpose is one line on stderr and exit code 2."""
    debug = "--debug" in sys.argv[1:]
    warnings.showwarning = _show_warning
    try:
        app()
    except HeadspanError as problem:
        if debug:
            raise
        typer.echo(f"headspan: {problem}", err=True)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
