"""How a command ends: its result drawn, saved and printed, as its options ask.

1. `delivery` takes the options and refuses a place that could not be written to, before anything is computed.
2. The command computes its result.
3. `Delivery.deliver` writes image files, then the file, then prints: JSON, or tables and where the file is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from headspan.cli.figure_files import ImageFiles

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from headspan.lenses.affinity.head_classes import HeadClasses

    Result = xr.Dataset | xr.DataTree

Writer = Callable[[Any, Path], None]
"""Writes a result to a path."""


class Forms(Protocol):
    """What a lens makes of its result beside the result itself; the package of a lens is one of these."""

    def table(self, result: Any, /) -> pd.DataFrame:
        """Rows, for .csv and .parquet."""

    def as_json(self, result: Any, /) -> dict[str, Any]:
        """Plain values, for .json and --json."""


@dataclass(frozen=True)
class Delivery:
    """Where the result of a lens goes: a file, image files, and the terminal as JSON or as tables.

    `more` are endings of the file that this lens has beyond those of every lens, each with its writer.
    """

    lens: str
    output: Path | None = None
    images: ImageFiles | None = None
    as_json: bool = False
    more: Mapping[str, Writer] = field(default_factory=dict)

    def deliver(self, result: Result, forms: Forms, show: Callable[[Any], None]) -> None:
        """Draw and save the result, then print it; `show` prints it as tables."""
        self.draw(result)
        self.save(result, forms.table, forms.as_json)
        self.tell(lambda: forms.as_json(result), lambda: show(result))

    def draw(self, result: Result, classes: HeadClasses | None = None) -> None:
        """Write the figures as image files, coloured by classes of heads where there are any."""
        if self.images is None:
            return
        from headspan.explorer.lens_figures import lens_figures

        figures = lens_figures(self.lens, result, classes)
        self.images.write({(self.lens, name): figure for name, figure in figures.items()})

    def save(
        self, result: Result, table: Callable[[Any], pd.DataFrame], as_json: Callable[[Any], dict[str, Any]]
    ) -> None:
        """Write the result to the file, in the form that its ending asks for."""
        if self.output is None:
            return
        from headspan.lenses.saving import save_result

        more = {ending: partial(write, result) for ending, write in self.more.items()}
        save_result(result, self.output, table=table, as_json=as_json, more=more)

    def tell(self, document: Callable[[], dict[str, Any]], show: Callable[[], None]) -> None:
        """Print JSON, or else tables and where the file is."""
        if self.as_json:
            print_json(document())
            return
        show()
        if self.output is not None:
            typer.echo(f"Written to {self.output}")


def delivery(
    lens: str,
    output: Path | None,
    images: ImageFiles | None,
    as_json: bool,
    *,
    more: Mapping[str, Writer] | None = None,
    force: bool = True,
) -> Delivery:
    """What the options of a command ask for; refuses a file that could not be written or, without `force`, exists."""
    more = more or {}
    if output is not None:
        from headspan.atomic import check_writable, refuse_existing
        from headspan.lenses.saving import ENDINGS

        check_writable(output, (*ENDINGS, *more))
        refuse_existing(output, force)
    return Delivery(lens, output, images, as_json, more)


def figures_page(lens: str) -> dict[str, Writer]:
    """The ending .html of a lens whose figures and findings are a page by themselves."""

    def write(result: Result, path: Path) -> None:
        from headspan.explorer.figures_page import write_figures_page

        write_figures_page(lens, result, path)

    return {".html": write}


def print_json(document: Mapping[str, Any]) -> None:
    """A document on stdout; NaN is a mistake of whoever made it."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
