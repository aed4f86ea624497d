"""Figures on the page: each one's data as JSON beside an empty box, and one script that fills the boxes.

1. A figure becomes a `<figure>`: its name, an empty `div`, and its data in a `<script type="application/json">`, which
   no browser runs. `<` is written as an escape there, so that no text in the data can end the element.
2. plotly.js comes out of the installed package and stands on the page once, only if there is a figure.
3. `DRAW` fills the boxes, each in a task of its own, so that one bad figure does not take the others with it. The
   button that would upload a figure to plotly's servers, which plotly.js shows unless told otherwise, is off.

Figures keep the colours of a light page in their data (a saved image is legible anywhere); `STYLE` recolours their text
and lines with the page's own colours, so that they follow a dark page without being drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from headspan.report.html import Markup, element

DRAW = """
"use strict";
const config = {responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};
for (const box of document.querySelectorAll("div.plot")) setTimeout(() => {
  const figure = JSON.parse(box.nextElementSibling.textContent);
  Plotly.newPlot(box, figure.data, figure.layout, config).then(() => { box.dataset.drawn = "yes"; });
});
"""

STYLE = """
figure { margin: 1.5rem 0 2rem; }
figure > h3 { margin-bottom: .25rem; }
.plot { min-width: 46rem; }
.plot .infolayer text, .plot [class$="tick"] text { fill: var(--ink) !important; }
.plot .gridlayer path { stroke: var(--line) !important; }
.plot .xaxislayer-above path, .plot .yaxislayer-above path, .plot .zerolinelayer path {
  stroke: var(--soft) !important; }
.plot .modebar-btn path { fill: var(--soft) !important; }
.plot .modebar, .plot .modebar-group { background: transparent !important; }
@media print { .plot .modebar { display: none; } figure { break-inside: avoid; } }
"""


def figure_blocks(figures: Mapping[str, go.Figure]) -> list[Markup]:
    """One block per figure, in order."""
    return [_block(name, figure) for name, figure in figures.items()]


def drawing_scripts() -> list[Markup]:
    """What a page with figures needs at its end."""
    return [element("script", Markup(get_plotlyjs())), element("script", Markup(DRAW))]


def _block(name: str, figure: go.Figure) -> Markup:
    drawn = go.Figure(figure).update_layout(
        width=None, autosize=True, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)"
    )
    height = f"{figure.layout.height or 450}px"
    box = element("div", class_="plot", role="img", aria_label=name, style=f"height: {height}")
    data = element("script", _embedded(drawn), type_="application/json")
    return element("figure", element("h3", name), element("div", box, data, class_="scroll"))


def _embedded(figure: go.Figure) -> Markup:
    """A figure's JSON, with typed arrays in base64, as text that cannot leave a script element."""
    return Markup(str(figure.to_json()).replace("<", "\\u003c"))
