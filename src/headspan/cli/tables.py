"""Printing facts and tables on a terminal."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headspan.errors import one_line


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


def p_text(value: float) -> str:
    """A p-value for reading: a dash where it is undefined, a bound where it is too small for a float."""
    if value != value:
        return "-"
    return "<1e-300" if value < 1e-300 else f"{value:.2g}"


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
