"""One look for all figures: colours that colour-blind readers can tell apart, and pages light or dark.

Figures have no background of their own. Text and lines are greys that stand out from white and from near-black alike,
so that a figure drawn once fits a page in either mode.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#F0E442",
    "#8A929A",
)
CATEGORIES = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY)
"""The palette of Okabe and Ito (2008), Color Universal Design, with grey in place of black."""
SEQUENTIAL = "Cividis"
"""For amounts, which fill cells (Nuñez, Anderton and Renslow 2018)."""
ORDERED = [[0.0, BLUE], [0.5, "#8F6F96"], [1.0, VERMILION]]
"""For lines of ordered things such as layers: the ends of Cividis vanish, one on a dark page and one on a light."""
DIVERGING = [[0.0, "#00487A"], [0.25, "#3F93C9"], [0.5, "#ECECEC"], [0.75, "#E08A3C"], [1.0, "#9C3D00"]]
"""Around the expected value: blue below it, pale at it, orange above."""
CHANCE = GREY
"""What is expected under the null is always drawn in this color."""

SVG_POINTS = 2000
TEXT = "#737D87"
LINE = "rgba(128, 138, 148, 0.28)"
FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif'


def _axis() -> dict[str, object]:
    return {
        "gridcolor": LINE,
        "linecolor": LINE,
        "zerolinecolor": LINE,
        "ticks": "outside",
        "tickcolor": LINE,
        "automargin": True,
        "title": {"standoff": 8},
    }


template = go.layout.Template(
    layout={
        "colorway": CATEGORIES,
        "font": {"family": FONT, "size": 13, "color": TEXT},
        "title": {"font": {"size": 16}, "x": 0, "xref": "paper", "xanchor": "left"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 24, "t": 64, "b": 48},
        "xaxis": _axis(),
        "yaxis": _axis(),
        "coloraxis": {"colorbar": {"outlinewidth": 0, "ticks": "outside", "thickness": 14}},
        "colorscale": {"sequential": SEQUENTIAL, "diverging": DIVERGING},
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.14, "x": 0},
        "hoverlabel": {"font": {"family": FONT}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": LINE, "activecolor": TEXT},
        "bargap": 0.06,
    }
)


def around_chance(lowest: float, chance: float, highest: float) -> dict[str, object]:
    """A color axis that is pale at the expected value, equally steep on both sides, and no longer than the values are.

    The color bar names the expected value and the two ends, unless an end is so near that the labels would touch.
    """
    lowest, highest = min(lowest, chance), max(highest, chance)
    reach = max(chance - lowest, highest - chance) or 1.0
    steps = [place / 20 for place in range(21)]
    spread = [0.5 + 0.5 * (lowest + step * (highest - lowest) - chance) / reach for step in steps]
    places = [min(1.0, max(0.0, place)) for place in spread]  # rounding may step over an end
    colours = sample_colorscale(DIVERGING, places)
    room = 0.06 * (highest - lowest)
    ticks = [chance] + [end for end in (lowest, highest) if abs(end - chance) > room]
    names = [f"{tick:.4g}" + (" expected" if tick == chance else "") for tick in ticks]
    return {
        "colorscale": [list(pair) for pair in zip(steps, colours, strict=True)],
        "cmin": lowest,
        "cmax": highest if highest > lowest else lowest + 1.0,
        "colorbar": {"tickvals": ticks, "ticktext": names, "len": 0.9},
    }


def point_trace(count: int) -> Any:
    """The kind of trace for so many points: SVG up to a few thousand, drawn by the graphics card beyond."""
    return go.Scattergl if count > SVG_POINTS else go.Scatter


def styled(figure: go.Figure, title: str, height: int) -> go.Figure:
    """`figure` with the house template, a title and a height; its width follows the page."""
    figure.update_layout(template=template, title_text=title, height=height)
    figure.update_annotations(font={"size": 13, "color": TEXT})
    return figure


PRINTED = {False: ("#FFFFFF", "#1B1F24", "#D0D6DC"), True: ("#14171A", "#E8EBEE", "#3A4148")}
"""Paper, text and lines of a figure that stands alone, light and dark."""


def printed(figure: go.Figure, dark: bool = False) -> go.Figure:
    """A copy of `figure` with a background of its own, for a file that stands alone."""
    paper, ink, line = PRINTED[dark]
    copy = go.Figure(figure)
    copy.update_layout(paper_bgcolor=paper, plot_bgcolor=paper, font_color=ink)
    # What is clicked on has no place on paper.
    copy.layout.updatemenus = copy.layout.sliders = ()
    for update in (copy.update_xaxes, copy.update_yaxes):
        update(gridcolor=line, linecolor=line, zerolinecolor=line, tickcolor=line)
    copy.update_annotations(font_color=ink)
    return copy
