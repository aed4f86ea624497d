"""How a lens's command ends: its result drawn, saved and printed, as its options ask.

`Delivery.of` takes the options and refuses what could not be written before anything is computed; `deliver` writes
image files, then the file, then prints: JSON, or what the lens shows and where the file is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headspan.cli.figure_files import ImageFiles, image_files
from headspan.command import Facts, Rows
from headspan.result import ENDINGS, Lens

if TYPE_CHECKING:
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
        return dict(json.loads(named))
    published = published_classes(result.attrs)
    return None if published is None else published.of_head


def print_all(blocks: Iterable[str | Rows | Facts]) -> None:
    """Sentences, tables and facts on the terminal."""
    from headspan.cli.tables import print_facts, print_table

    for block in blocks:
        if isinstance(block, Rows):
            print_table(block.title, block.columns, block.rows)
        elif isinstance(block, Facts):
            print_facts(block.facts, block.title or None)
        else:
            typer.echo(block)


def print_json(document: Mapping[str, Any]) -> None:
    """A document on stdout; NaN is a mistake of whoever made it."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
