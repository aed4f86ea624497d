"""Figures as image files for papers and slides: SVG, PNG or PDF at the width of a journal page.

1. Each figure gets a background, text and lines for a light page or a dark one (on a page of ours it has none).
2. kaleido has a browser draw all of them in one go; plotly.js comes out of the installed package, nothing is fetched.
3. The files take their names only when all of them are there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from headspan.errors import HeadspanError, one_line
from headspan.explorer.figure_block import figure_id
from headspan.theme import printed

FORMATS = ("svg", "png", "pdf")
WIDTH = 860
"""Pixels that figures are laid out on, as on a page of ours."""
PRINTED_SCALE = 680 / WIDTH
"""To 180 mm at 96 pixels to the inch, two columns of a journal; letters of 13 pixels become 8 points."""
PNG_SCALE = PRINTED_SCALE * 300 / 96
"""300 dots to the inch."""
NEEDED = (
    "image files need kaleido and a Chromium or Chrome: pip install 'headspan[images]', install chromium, and if it is "
    "not found set BROWSER_PATH to its program"
)


def check_figure_files(folder: Path, form: str) -> None:
    """Refuse, before any work is done, what could not be written later."""
    if form not in FORMATS:
        raise HeadspanError(f"figures cannot be written as {form!r}; formats are {', '.join(FORMATS)}")
    try:
        if folder.exists() and not folder.is_dir():
            raise HeadspanError(f"cannot write figures to '{folder}': it is a file; name a folder")
    except OSError as problem:
        raise HeadspanError(f"cannot write figures to '{folder!s:.80}': {problem.strerror}") from problem
    if find_spec("kaleido") is None:
        raise HeadspanError(NEEDED)


def write_figure_files(
    figures: Mapping[tuple[str, str], go.Figure], folder: Path, form: str = "svg", dark: bool = False
) -> list[Path]:
    """Write figures by lens and name to a folder, all of them or none.

    Parameters
    ----------
    figures
        By lens and name; both make the name of the file, such as `affinity-wiring-diagram.svg`.
    folder
        Where to; it is made if it is not there. Files of the same names are replaced.
    form
        svg, png (300 dots to the inch) or pdf.
    dark
        For a dark page or slide.
    """
    check_figure_files(folder, form)
    if not figures:
        return []
    paths = [folder / f"{figure_id(lens, name)}.{form}" for lens, name in figures]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".figures-", dir=folder) as scratch:
            drawn = [Path(scratch) / path.name for path in paths]
            _draw([printed(figure, dark) for figure in figures.values()], drawn, form)
            for source, path in zip(drawn, paths, strict=True):
                source.replace(path)
    except OSError as problem:
        raise HeadspanError(f"cannot write figures to '{folder}': {problem.strerror or problem}") from problem
    return paths


def _draw(figures: list[go.Figure], paths: list[Path], form: str) -> None:
    """Let a browser draw every figure; what it fails with is told in one line."""
    import kaleido

    scale = PNG_SCALE if form == "png" else PRINTED_SCALE
    specs: list[dict[str, Any]] = [
        {
            "fig": figure.to_dict(),
            "path": path,
            "opts": {"format": form, "width": WIDTH, "height": int(figure.layout.height or 450), "scale": scale},
        }
        for figure, path in zip(figures, paths, strict=True)
    ]
    try:
        # Without being told so, kaleido would fetch MathJax, which no figure of ours uses.
        kaleido.write_fig_from_object_sync(specs, kopts={"mathjax": False})
    except RuntimeError as problem:
        reason = one_line(str(problem).strip().split("\n")[0])[:160]
        raise HeadspanError(f"the browser did not draw the figures ({reason}); {NEEDED}") from problem
    missing = [path.name for path in paths if not path.is_file() or path.stat().st_size == 0]
    if missing:
        raise HeadspanError(f"the browser left {len(missing)} figures undrawn, such as {missing[0]}; {NEEDED}")
