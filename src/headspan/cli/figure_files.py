"""`--figures DIR` of every command that draws: its figures as image files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
