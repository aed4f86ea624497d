"""How a lens's command ends: its result drawn, saved and printed, as its options ask.

`Delivery.of` takes the options and refuses what could not be written before anything is computed; `deliver` writes
image files, then the file, then prints: JSON, or what the lens shows and where the file is.

`--figures DIR` of every command that draws: its figures as image files.

Printing facts and tables on a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headspan.command import Facts, Rows
from headspan.errors import one_line
from headspan.input_files import json_object
from headspan.result import ENDINGS, Lens

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from headspan.result import Result


@dataclass(frozen=True)
class Delivery:
    """Where the result of a lens goes: a file, image files, and the terminal as JSON or as tables."""

    output: Path | None = None
    images: ImageFiles | None = None
    as_json: bool = False

    @classmethod
    def of(
        cls,
        lens: Lens,
        output: Path | None,
        figures: Path | None = None,
        figure_format: str = "svg",
        dark: bool = False,
        as_json: bool = False,
        force: bool = False,
    ) -> Delivery:
        """What the options of a command ask for; refuses a file that cannot be written or, without `force`, exists."""
        if output is not None:
            from headspan.atomic import check_writable, refuse_existing

            check_writable(output, (*ENDINGS, *getattr(lens.part("command"), "ENDINGS", {})))
            refuse_existing(output, force)
        return cls(output, image_files(figures, figure_format, dark), as_json)

    def deliver(self, result: Result, show: Callable[..., Iterable[Any]], view: Mapping[str, Any]) -> None:
        """Draw and save the result, then print it; `show` says what to print as tables."""
        if self.images is not None:
            drawn = result.draw(classes=head_classes(result))
            self.images.write({(result.lens.name, name): figure for name, figure in drawn.items()})
        if self.output is not None:
            result.save(self.output)
        if self.as_json:
            print_json(result.to_json(top=view.get("top"), null=view.get("null")))
            return
        print_all(show(result, **view))
        if self.output is not None:
            typer.echo(f"Written to {self.output}")


def head_classes(result: Result) -> Mapping[str, str] | None:
    """Classes of heads that the result carries, by label, or those published for its model; None without any."""
    from headspan.heads.classes import published_classes

    named = result.attrs.get("head_classes")
    if named:
        return json_object(str(named).encode(), "the attribute 'head_classes'")
    published = published_classes(result.attrs)
    return None if published is None else published.of_head


def print_all(blocks: Iterable[str | Rows | Facts]) -> None:
    """Sentences, tables and facts on the terminal."""

    for block in blocks:
        if isinstance(block, Rows):
            print_table(block.title, block.columns, block.rows)
        elif isinstance(block, Facts):
            print_facts(block.facts, block.title or None)
        else:
            typer.echo(block)


PART_FAILED = 3
"""Exit code of a command that did the rest of its work."""
_json_output: TextIO | None = None
"""Where JSON goes while `only_json` holds everything else back from standard output."""


@contextmanager
def only_json() -> Iterator[None]:
    """Within the block, standard output gets JSON and nothing else: what any library prints goes to standard error.

    Files are exchanged below Python, so that compiled code and worker processes are held to it too.
    """
    global _json_output
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as stream, redirect_stdout(sys.stderr):
            _json_output = stream
            yield
            stream.flush()
    finally:
        _json_output = None
        os.dup2(kept, 1)
        os.close(kept)


def print_json(document: Mapping[str, Any]) -> None:
    """A document on stdout; NaN is a mistake of whoever made it."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False), file=_json_output)


@dataclass(frozen=True)
class ImageFiles:
    """Image files that were asked for: the folder, their format (svg, png or pdf), and whether for a dark page."""

    folder: Path
    form: str
    dark: bool

    def write(self, figures: Mapping[tuple[str, str], go.Figure]) -> None:
        """Write figures by lens and name, and say so on stderr, where JSON is not."""
        from headspan.explorer.figure_files import write_figure_files

        paths = write_figure_files(figures, self.folder, self.form, self.dark)
        typer.echo(f"{len(paths)} figures written to {self.folder}", err=True)


def image_files(folder: Path | None, form: str, dark: bool) -> ImageFiles | None:
    """What --figures asks for, if anything; what could not be written is refused before any work is done for it."""
    if folder is None:
        return None
    from headspan.explorer.figure_files import check_figure_files

    check_figure_files(folder, form)
    return ImageFiles(folder, form, dark)


def print_facts(rows: Iterable[tuple[str, str]], title: str | None = None) -> None:
    """Names and values in two columns. Text from a file is shown as it is: no markup, no control characters."""
    if title is not None:
        _print_title(title)
    grid = Table(show_header=False, box=None, pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), Text(one_line(value)))
    Console().print(grid)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Iterable[str]]) -> None:
    """A titled table of text; numbers are formatted by whoever knows them."""
    _print_title(title)
    grid = Table(box=None, pad_edge=False)
    for name in columns:
        grid.add_column(Text(name), overflow="fold")
    for row in rows:
        grid.add_row(*(Text(one_line(cell)) for cell in row))
    Console().print(grid)


def _print_title(title: str) -> None:
    # A title inside the table would be folded to the table's width.
    Console().print(Text(one_line(title), style="bold"))


def print_records(title: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Records with the same keys as a table: numbers to four digits, a dash for None."""
    if records:
        print_table(title, [key.replace("_", " ") for key in records[0]], (map(_cell, row.values()) for row in records))


def print_columns(
    title: str, columns: Mapping[str, tuple[str, str]], records: Iterable[Mapping[Hashable, Any]]
) -> None:
    """Some keys of records as a table; `columns` gives each of them a heading and a format."""
    rows = ([form.format(row[key]) for key, (_, form) in columns.items()] for row in records)
    print_table(title, [heading for heading, _ in columns.values()], rows)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
