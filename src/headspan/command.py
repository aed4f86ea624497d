"""What a lens says about its command: help texts of its options, and how its result is printed.

A lens's `command.py` holds a `COMMAND` and a generator `show(result, ...)`, which yields sentences and `Rows`. Options
are parameters of the lens's public function (their defaults are taken from there) or of `show` (then they choose what
is printed, not what is computed); one of both goes to both, and one of neither is for the lens's
`prepare(options, given)`, which makes arguments of what was typed, or an `Answer` in place of computing. Options that
every lens shares are declared in `headspan.cli.options`. This module loads nothing, so that `--help` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LOOK, RUN, COMPARE, DOCUMENTS = "Look at a model", "Run it", "Compare and follow", "Documents"
"""Groups of commands in `headspan --help`."""


@dataclass(frozen=True)
class Option:
    """An option of one command.

    Parameters
    ----------
    help
        One line for `--help`.
    type
        What it is read as; by default the type of its default value, or text.
    names
        Its spellings, such as ("--pairings", "--pairing"); by default its name with dashes.
    metavar
        What stands for its value in `--help`.
    """

    help: str
    type: Any = None
    names: tuple[str, ...] = ()
    metavar: str | None = None


@dataclass(frozen=True)
class Command:
    """A command: its one-line help, its group in `headspan --help`, its own options and positional arguments."""

    help: str
    group: str = LOOK
    options: Mapping[str, Option] = field(default_factory=dict)
    arguments: Mapping[str, Option] = field(default_factory=dict)
    """Positional arguments after the model, by parameter of the lens's function."""
    views: tuple[str, ...] = ()
    """Other names of the command, for what it shows when it is given its positional arguments."""
    python_only: frozenset[str] = frozenset()
    """Parameters of the lens's function that hold objects, so that no option can give them."""


Form = str | Callable[[Any], str]
"""How a value is written in a table: a format, or a function."""


@dataclass(frozen=True)
class Rows:
    """A table to be printed: a title, headings, and cells as text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of_records(cls, title: str, records: Iterable[Mapping[Any, Any]]) -> Rows:
        """Records with the same keys: numbers to four digits, a dash for what is absent."""
        listed = list(records)
        columns = [str(key).replace("_", " ") for key in listed[0]] if listed else []
        return cls(title, columns, [[cell(value) for value in row.values()] for row in listed])

    @classmethod
    def of_columns(
        cls, title: str, columns: Mapping[str, tuple[str, Form]], records: Iterable[Mapping[Any, Any]]
    ) -> Rows:
        """Some keys of records; `columns` gives each of them a heading and a format, as text or a function."""
        cells = [
            [form.format(row[key]) if isinstance(form, str) else form(row[key]) for key, (_, form) in columns.items()]
            for row in records
        ]
        return cls(title, [heading for heading, _ in columns.values()], cells)


@dataclass(frozen=True)
class Facts:
    """Names and values, one pair a line, under a title."""

    facts: Sequence[tuple[str, str]]
    title: str = ""


Printed = Iterable[str | Rows | Facts]
"""What `show` yields."""


@dataclass(frozen=True)
class Answer:
    """What a command says in place of computing: blocks to print, or a document for `--json`."""

    printed: Printed
    document: Mapping[str, Any]


def cell(value: Any) -> str:
    """A value in a table: four digits of a number, a dash for what is absent."""
    if value is None or value != value:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def p_text(value: float | None) -> str:
    """A p- or q-value: two digits, a dash where there is none, and a bound where a float ends."""
    if value is None or value != value:
        return "-"
    return "<1e-300" if value < 1e-300 else f"{value:.2g}"
