"""The `headspan` command: its subcommands, and how errors reach the terminal."""

from __future__ import annotations

import atexit
import gc
import hashlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from headspan._version import __version__
from headspan.cli import claims, evolution, inspect, paths, report, reproduce, sweep, train
from headspan.cli.delivery import only_json
from headspan.cli.flags import PlainCommand, PlainGroup
from headspan.cli.lens_commands import declared_command, lens_command
from headspan.command import COMPARE, DOCUMENTS, LOOK, RUN
from headspan.errors import HeadspanError, one_line
from headspan.lenses.catalog import lenses

app = typer.Typer(
    cls=PlainGroup,
    help="The geometry of transformer weights: what every attention head can read and write.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
OTHERS: dict[str, dict[str, Callable[..., None]]] = {
    LOOK: {"inspect": inspect.inspect, "report": report.report, "families": inspect.families},
    COMPARE: {"train": train.train, "sweep": sweep.sweep, "evolution": evolution.evolution},
    DOCUMENTS: {"claims": claims.claims, "reproduce": reproduce.reproduce, "paths": paths.paths},
}
"""Commands that are no lenses, by group."""
for group in (LOOK, RUN, COMPARE, DOCUMENTS):
    for name, function in OTHERS.get(group, {}).items():
        app.command(name, cls=PlainCommand, rich_help_panel=group)(function)
    for lens in lenses().values():
        if declared_command(lens).group == group:
            for spelled in (lens.name, *declared_command(lens).views):
                app.command(spelled, cls=PlainCommand, rich_help_panel=group)(lens_command(lens, spelled))

BAD_INPUT, INTERNAL, INTERRUPTED = 2, 70, 130
"""Exit codes beside 0; commands have 1 (a claim or result disagrees) and 3 (part of the work failed) of their own."""


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
    """Run the command line: an error on purpose is one line on stderr and exit code 2, any other one and 70."""
    debug = "--debug" in sys.argv[1:]
    # Threads that wait for each other sleep instead of spinning: on a busy machine spinning took 60 times the work.
    # Read when torch is loaded, which no command has done yet.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # At its end Python looks three times for garbage among all modules: a second, where transformers is loaded. What a
    # command writes is closed by then. Registered first, so that it is done last.
    atexit.register(gc.freeze)
    warnings.showwarning = _show_warning
    try:
        with only_json() if "--json" in sys.argv[1:] else nullcontext():
            app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as problem:  # noqa: BLE001 - panics of compiled code are no Exceptions
        if debug:
            traceback.print_exc()
        else:
            typer.echo(f"headspan: {problem if isinstance(problem, HeadspanError) else internal(problem)}", err=True)
        sys.exit(BAD_INPUT if isinstance(problem, HeadspanError) else INTERNAL)


def internal(problem: BaseException) -> str:
    """One line about an error that nobody foresaw; its id is the same for the same mistake."""
    if isinstance(problem, MemoryError):
        return "there is not enough memory; lower --memory, or ask for less"
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if "headspan" in frame.filename] or frames
    place = f"{Path(ours[-1].filename).name}, line {ours[-1].lineno}" if ours else "an unknown place"
    facts = [type(problem).__name__, *(f"{Path(frame.filename).name} {frame.name}" for frame in frames)]
    name = hashlib.sha256(f"{__version__} {facts}".encode()).hexdigest()[:10]
    said = one_line(problem)[:200]
    return (
        f"internal error in {place} ({type(problem).__name__}: {said}); run with --debug for the trace; please report "
        f"it with the id {name}"
    )
