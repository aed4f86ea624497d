"""Figures on the page: each one's description as JSON beside an empty box, and scripts that fill the boxes.

1. A figure becomes a `<figure>`: its name, what it shows in a sentence, an empty `div`, and its description in a
   `<script type="application/json">`, which no browser runs. Its numbers are in the page's store.
2. The sentence is the figure's own title: as text of the page it wraps on a narrow screen, which plotly's does not.
3. plotly.js comes out of the installed package and stands on the page once, packed. The button that would upload a
   figure to plotly's servers, which plotly.js shows unless told otherwise, is off.

Figures keep the colors of a light page in their data (a saved image is legible anywhere); the style sheet recolors
their text and lines with the page's own colors, so that they follow a dark page without being drawn again.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from headspan.explorer.component import figure_scripts
from headspan.explorer.html import Markup, element, text
from headspan.explorer.store import Store, json_text, packed_text

TITLE_HEIGHT = 36
"""Pixels that plotly would use for the title."""
TOP_MARGIN = 64
LEAST_WIDTHS = {1: "0"}
WIDEST = "40rem"
"""Of a figure whose panels cannot be laid out anew: its box scrolls where the screen is narrower."""


def figure_blocks(
    figures: Mapping[str, go.Figure],
    store: Store | None = None,
    prefix: str = "figure",
    alternatives: Mapping[str, Mapping[str, go.Figure]] | None = None,
    data: Mapping[str, str] | None = None,
) -> list[Markup]:
    """One block per figure, in order.

    Parameters
    ----------
    figures
        Figures by name.
    store
        Where the page keeps its arrays; without one every figure carries its own.
    prefix
        What a figure's id begins with.
    alternatives
        By name of a figure, the same figure for other scores by their short names; the first is that of `figures`.
    data
        By name of a figure, the name of the table with the numbers behind it.
    """
    blocks = []
    for name, figure in figures.items():
        drawn = {"": figure} if alternatives is None or name not in alternatives else alternatives[name]
        table = (data or {}).get(name)
        blocks.append(_block(name, drawn, store, figure_id(prefix, name), table))
    return blocks


def figure_id(prefix: str, name: str) -> str:
    """The id of a figure's block, which links point to."""
    return f"{prefix}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"


def drawing_scripts() -> list[Markup]:
    """What a page with figures needs at its end, where nothing but the figures is to be drawn."""
    return [plotly_script(), *figure_scripts()]


def plotly_script() -> Markup:
    """plotly.js, out of the installed package, packed: a page unpacks it when the first figure is drawn."""
    return packed_text("plotly", gzip.compress(get_plotlyjs().encode(), compresslevel=5, mtime=0))


def _block(
    name: str, figures: Mapping[str, go.Figure], store: Store | None, identifier: str, table: str | None
) -> Markup:
    first = next(iter(figures.values()))
    height = f"{int(first.layout.height or 450) - TITLE_HEIGHT}px"
    width = LEAST_WIDTHS.get(_columns(first), WIDEST)
    plot = element("div", class_="plot", role="img", aria_label=name, style=f"height: {height}; min-width: {width}")
    specs = {metric: _spec(figure, store) for metric, figure in figures.items()}
    captions = [_caption(name, figure, metric, metric != next(iter(figures))) for metric, figure in figures.items()]
    words = {"type_": "button", "aria_label": f"Save the data of {name} as CSV"}
    # Without a table of its own a figure is saved as what it draws; without a store the page has no script for that.
    button = [] if store is None else [element("button", "CSV", **words, **({"data_csv": table} if table else {}))]
    return element(
        "figure",
        element("div", element("h4", name), *button, class_="figure-head"),
        *(caption for caption in captions if caption is not None),
        element("div", plot, class_="scroll"),
        element("script", Markup(json_text(specs)), type_="application/json", class_="spec"),
        id_=identifier,
        class_="figure",
    )


def _caption(name: str, figure: go.Figure, metric: str, hidden: bool) -> Markup | None:
    """A figure's title as text, unless it only repeats the name.

    Of a figure for several scores the page shows that of the score looked at.
    """
    own = {"data_metric": metric} if metric else {}
    title = _title(figure)
    if title == name:
        return None
    return element("p", _rich(title), class_="caption", **own, **({"hidden": ""} if hidden else {})) if title else None


def _columns(figure: go.Figure) -> int:
    """How many panels stand side by side."""
    axes = [figure.layout[name] for name in figure.layout if str(name).startswith("xaxis")]
    return len({axis.domain[0] for axis in axes if axis.domain}) or 1


def _title(figure: go.Figure) -> str:
    title = figure.layout.title
    parts = [title.text, title.subtitle.text if title.subtitle else None]
    return ". ".join(str(part) for part in parts if part)


def _rich(title: str) -> Markup:
    """A title as HTML: of plotly's tags only subscripts are kept, everything else is text."""
    return Markup(re.sub(r"&lt;(/?sub)&gt;", r"<\1>", str(text(title))))


def _spec(figure: go.Figure, store: Store | None) -> Any:
    """A figure as JSON values, transparent, as wide as its box, its title left to the page."""
    document = json.loads(str(figure.to_json()))
    layout = document["layout"]
    for name in ("width", "title"):
        layout.pop(name, None)
    layout |= {"autosize": True, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}
    margin = layout.setdefault("margin", {})
    margin["t"] = max(margin.get("t", TOP_MARGIN) - TITLE_HEIGHT, 8)
    layout["height"] = layout.get("height", 450) - TITLE_HEIGHT
    return document if store is None else store.figure(document)
