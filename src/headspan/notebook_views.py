"""What a notebook shows of a result and of its figures, live and in a file that was exported from it.

A figure is sent twice: as plotly's own type, which notebooks draw, and as HTML, which exports show (nbconvert drops the
former). The HTML needs no network: the drawing library stands in the first figure of a session and serves those after
it. Where plotly is told to draw pictures (`plotly.io.renderers.default = "png"`, or `PLOTLY_RENDERER=png`), every
figure is a picture alone, and the file stays small.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
import plotly.io as pio

from headspan.errors import ArgumentError

if TYPE_CHECKING:
    from headspan.result import Result

ROWS = 5
"""Rows of a result's first table that are shown."""
PICTURES = {"png": "image/png", "svg": "image/svg+xml", "jpeg": "image/jpeg", "jpg": "image/jpeg"}


class NotebookFigure(go.Figure):  # type: ignore[misc]
    """A plotly figure that an exported notebook shows too."""

    def _ipython_display_(self) -> None:
        _send(views_of(self))


class Gallery(dict[str, Any]):
    """Figures by name; a notebook shows all of them, one below the other."""

    def __init__(self, title: str, figures: Mapping[str, go.Figure]) -> None:
        super().__init__(figures)
        self.title = title

    def __getitem__(self, name: str) -> go.Figure:
        figure = super().__getitem__(name)
        if not isinstance(figure, NotebookFigure):
            figure = self[name] = NotebookFigure(figure)
        return figure

    def __missing__(self, name: str) -> go.Figure:
        raise ArgumentError(f"there is no figure {name!r} of {self.title}; figures are {', '.join(self)}")

    def __repr__(self) -> str:
        return f"{self.title}: {', '.join(self)}"

    def _ipython_display_(self) -> None:
        for name in self:
            self[name]._ipython_display_()


def views_of(figure: go.Figure) -> dict[str, Any]:
    """A figure by MIME type: a picture where plotly is told to draw pictures, else plotly's own type and HTML."""
    picture = _picture()
    if picture:
        drawn = figure.to_image(format=picture)
        return {PICTURES[picture]: drawn.decode() if picture == "svg" else b64encode(drawn).decode()}
    live: dict[str, Any] = pio.renderers["plotly_mimetype"].to_mimebundle(figure.to_dict())
    return {**live, "text/html": figure_html(figure)}


def figure_html(figure: go.Figure) -> str:
    """A figure as HTML that needs no network."""
    picture = _picture()
    if picture:
        drawn = b64encode(figure.to_image(format=picture)).decode()
        return f'<img alt="{escape(_title(figure))}" src="data:{PICTURES[picture]};base64,{drawn}">'
    global _drawn_before
    include, _drawn_before = not _drawn_before, True
    html: str = figure.to_html(full_html=False, include_plotlyjs=include)
    return html


_drawn_before = False


def _picture() -> str:
    """The format of pictures that plotly is told to draw; empty where figures are to be live."""
    return next((name for name in (pio.renderers.default or "").split("+") if name in PICTURES), "")


def _title(figure: go.Figure) -> str:
    return figure.layout.title.text or "figure"


def result_html(result: Result) -> str:
    """The leading finding and the head of the first table."""
    found, parts = result.findings, [f"<p><strong>{escape(result.title)}</strong></p>"]
    if found:
        parts.append(f"<p>{escape(found[0].statement)}</p>")
    if result.tables:
        ranked = result.lens.schema.metrics
        rows = result.top(ROWS) if ranked else result.table().head(ROWS)
        parts.append(rows.to_html(index=False, float_format=lambda value: f"{value:.4g}", escape=True))
    return "".join(parts)


def show_result(result: Result) -> None:
    """Show a result below a cell: text and table, then the first figure as an output of its own."""
    _send({"text/plain": repr(result), "text/html": result_html(result)})
    drawn = result.figures
    if drawn:
        drawn[next(iter(drawn))]._ipython_display_()


def _send(views: dict[str, Any]) -> None:
    """Hand an output to the notebook."""
    from IPython.display import display

    display(views, raw=True)  # type: ignore[no-untyped-call]
