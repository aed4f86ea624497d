"""`--figures DIR` of every command that draws: its figures as image files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import xarray as xr

    from headspan.lenses.affinity.head_classes import HeadClasses

Figures = Annotated[
    Path | None, typer.Option("--figures", metavar="DIR", help="Also write the figures into this folder, as images.")
]
FigureFormat = Annotated[str, typer.Option("--figure-format", help="svg, png or pdf (needs kaleido and chromium).")]
Dark = Annotated[bool, typer.Option("--dark", help="Figures for a dark page.")]


def check_figures(folder: Path | None, form: str) -> None:
    """Refuse what could not be written before any work is done for it."""
    if folder is not None:
        from headspan.report.figure_files import check_figure_files

        check_figure_files(folder, form)


def save_figures(
    lens: str,
    result: xr.Dataset | xr.DataTree,
    folder: Path | None,
    form: str,
    dark: bool,
    classes: HeadClasses | None = None,
) -> None:
    """Write the figures of a result, where a folder was named, coloured by classes of heads where there are any."""
    if folder is None:
        return
    from headspan.report.lens_figures import lens_figures

    write_all(
        {(lens, name): figure for name, figure in lens_figures(lens, result, classes).items()}, folder, form, dark
    )


def write_all(figures: dict[tuple[str, str], object], folder: Path, form: str, dark: bool) -> None:
    """Write figures by lens and name, and say so on stderr, where JSON is not."""
    from headspan.report.figure_files import write_figure_files

    paths = write_figure_files(figures, folder, form, dark)
    typer.echo(f"{len(paths)} figures written to {folder}", err=True)
