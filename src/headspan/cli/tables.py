"""Printing facts and tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headspan.errors import one_line


def print_facts(rows: Iterable[tuple[str, str]], title: str | None = None) -> None:
    """Names and values in two columns. Text from a file is shown as it is: no markup, no control characters."""
    grid = Table(show_header=False, box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), Text(one_line(value)))
    Console().print(grid)
