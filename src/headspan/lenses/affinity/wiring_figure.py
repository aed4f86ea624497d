"""The wiring diagram: heads as dots, the strongest pairs of each pairing as arrows from writer to reader.

1. The strongest pairs come from the ranked table of the lens; nothing is ranked here.
2. Heads stand on a grid, layers upward (`layout="grid"`), or around an ellipse (`layout="ellipse"`).
3. Strong pairs are drawn boldly, those that stand out plainly; the others, the background, are faint and off until
   their legend entry is clicked. Where no null tells them apart (a sketch), all are drawn by score.
4. Arrows of one pairing share a legend entry, so that a click on it hides them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from headspan.dims import HeadLabel
from headspan.errors import ArgumentError
from headspan.lenses.affinity.figure_layout import (
    ELLIPSE_HEIGHT,
    FRAME_HEIGHT,
    add_frame,
    class_styles,
    class_text,
    ellipse_places,
    grid_height,
    inward_curve,
    layer_numbers,
    layer_range,
    pairing_color,
    shown_metrics,
    shown_pairings,
)
from headspan.lenses.affinity.schema import LONG_NAMES, NULLS
from headspan.lenses.affinity.wiring import edges, graph_null
from headspan.lenses.graph import BACKGROUND, IS_STRONG, STANDS_OUT, UNKNOWN
from headspan.lenses.wiring_layout import Place, arrow_curve, bow_curve, grid_places, group_ties, pairing_name
from headspan.result import Result
from headspan.theme import GREY, LINE

LAYOUTS = ("grid", "ellipse")
BOWS = (-0.09, 0.05, 0.13)
"""Sideways bend of OQ, OK, OV, so that arrows between the same heads stay apart."""
NO_CLASS, LABEL = "#DDDDDD", "#1B1F24"
LINES = {
    UNKNOWN: ((1.2, 4.5), (0.55, 0.95)),
    IS_STRONG: ((2.8, 4.5), (0.9, 0.95)),
    STANDS_OUT: ((1.2, 2.2), (0.6, 0.75)),
    BACKGROUND: ((1.0, 1.2), (0.3, 0.35)),
}
"""Width in pixels and opacity of an arrow by the tier of its pair; the score decides within."""
PLOT_WIDTH = 800
"""Width in pixels that sizes of dots are chosen for; a page may be wider or narrower."""
LARGEST_DOT, SMALLEST_LABELED = 34.0, 29.0


@dataclass(frozen=True)
class Drawing:
    """What the parts of one diagram share."""

    tables: Mapping[str, pd.DataFrame]
    places: Mapping[str, Place]
    metric: str
    null: str | None
    """What tells edges from the background; None in a sketch."""
    layout: str
    dot: float
    """Diameter of a head in pixels."""
    pixels: Place
    """Pixels per unit of each axis."""


def wiring_diagram(
    result: Result,
    classes: Mapping[str, str] | None = None,
    *,
    metric: str | None = None,
    top: int = 20,
    layout: str = "grid",
) -> go.Figure:
    """The `top` strongest pairs of each pairing.

    Parameters
    ----------
    result
        An affinity result.
    classes
        Head label -> class; classes are told apart by color.
    metric
        A score by name; by default the projection kernel where it was computed.
    top
        How many pairs of each pairing.
    layout
        `grid`: layers upward, heads across, every head shown. `ellipse`: only heads with an arrow, ordered by layer.
    """
    if layout not in LAYOUTS:
        raise ArgumentError(f"layout={layout!r} is unknown; layouts are {', '.join(LAYOUTS)}")
    drawing = _drawing(result, metric or shown_metrics(result)[0], top, layout)
    figure = go.Figure()
    if layout == "grid":
        figure.add_traces(_idle_heads(drawing, result))
    figure.add_traces(_arrows(drawing))
    figure.add_traces(_heads(drawing, classes or {}))
    count = max(len(table) for table in drawing.tables.values())
    title = f"Who writes to whom: the top {count} pairs of each pairing by {LONG_NAMES[drawing.metric]}"
    if drawing.null is not None and not any(edge != BACKGROUND for edge in _tiers(drawing)):
        title += f"; none stands out ({drawing.null} null)"
    add_frame(figure, title, result, layout)
    figure.update_layout(
        hovermode="closest",
        legend={"y": 1.0, "yanchor": "bottom", "itemsizing": "trace"},
        legend2={"orientation": "h", "y": -0.07, "yanchor": "top", "x": 0},
        meta=_meaning(drawing, classes or {}),
    )
    return figure


def _meaning(drawing: Drawing, classes: Mapping[str, str]) -> dict[str, Any]:
    """What a page needs to draw other pairs in the same way: layout, names, colors, classes."""
    return {
        "wiring": drawing.layout,
        "names": {pairing: pairing_name(pairing) for pairing in drawing.tables},
        "colors": {pairing: pairing_color(pairing) for pairing in drawing.tables},
        "classes": {class_text(name): list(style) for name, style in class_styles(classes).items()},
        "classOf": {label: class_text(name) for label, name in classes.items()},
    }


def _drawing(result: Result, metric: str, top: int, layout: str) -> Drawing:
    tables = {pairing: edges(result, pairing, metric, top) for pairing in shown_pairings(result)}
    layers, n_heads = layer_numbers(result), int(result.attrs["n_heads"])
    if layout == "grid":
        places = grid_places(layers, n_heads, int(result.attrs["n_kv_heads"]))
        low, high = layer_range(result)
        pixels = (PLOT_WIDTH / n_heads, (grid_height(result) - FRAME_HEIGHT) / (high - low))
        spacing = min(pixels)
    else:
        labels = (label for table in tables.values() for label in (*table["src"], *table["dst"]))
        places = ellipse_places(labels, PLOT_WIDTH / ELLIPSE_HEIGHT)
        pixels = (PLOT_WIDTH / 2, ELLIPSE_HEIGHT / 2)
        spacing = 2.5 * PLOT_WIDTH / max(len(places), 1)
    return Drawing(
        tables=tables,
        places=places,
        metric=metric,
        null=graph_null(result),
        layout=layout,
        dot=min(LARGEST_DOT, 0.9 * spacing),
        pixels=pixels,
    )


def _arrows(drawing: Drawing) -> list[go.Scatter]:
    """One trace per pair, and one empty trace per pairing that stands in the legend for all of its pairs."""
    scores = [score for table in drawing.tables.values() for score in table["score"]]
    low, high = min(scores, default=0.0), max(scores, default=1.0)
    traces = []
    for place, (pairing, table) in enumerate(drawing.tables.items()):
        style = {"legendgroup": pairing, "line": {"color": pairing_color(pairing), "width": 3}}
        traces.append(go.Scatter(x=[None], y=[None], mode="lines", name=pairing_name(pairing), **style))
        for edge in reversed(table.to_dict("records")):
            strength = (edge["score"] - low) / (high - low) if high > low else 1.0
            traces.append(_arrow(drawing, pairing, place, edge, strength))
    if BACKGROUND in _tiers(drawing):
        style = {"legendgroup": BACKGROUND, "line": {"color": GREY, "width": 1.2}, "visible": "legendonly"}
        traces.append(go.Scatter(x=[None], y=[None], mode="lines", name="background pairs", **style))
    return traces


def _tiers(drawing: Drawing) -> list[str]:
    return [tier for table in drawing.tables.values() for tier in table["tier"]]


def _arrow(drawing: Drawing, pairing: str, place: int, edge: Mapping[str, Any], strength: float) -> go.Scatter:
    ends = drawing.places[edge["src"]], drawing.places[edge["dst"]]
    curve = bow_curve(*ends, BOWS[place % len(BOWS)]) if drawing.layout == "grid" else inward_curve(*ends)
    color, tip = pairing_color(pairing), 8 + 5 * strength
    width, opacity = (low + strength * (high - low) for low, high in LINES[edge["tier"]])
    off = edge["tier"] == BACKGROUND
    curve = arrow_curve(curve, drawing.pixels, drawing.dot / 2, tip)
    return go.Scatter(
        x=curve[:, 0].round(4),
        y=curve[:, 1].round(4),
        mode="lines+markers",
        line={
            "color": color,
            "width": width,
            "simplify": False,
            "backoff": [0.0] * (len(curve) - 1) + [tip / 2],
        },
        marker={
            "symbol": "arrow",
            "size": [0] * (len(curve) - 1) + [tip],
            "angleref": "previous",
            "color": color,
            "line": {"width": 0},
        },
        opacity=opacity,
        visible="legendonly" if off else True,
        name=f"{edge['src']} → {edge['dst']}",
        meta={"pairing": pairing, "src": edge["src"], "dst": edge["dst"], "score": float(edge["score"])},
        legendgroup=BACKGROUND if off else pairing,
        showlegend=False,
        hovertemplate=_edge_text(drawing, pairing, edge) + "<extra></extra>",
    )


def _edge_text(drawing: Drawing, pairing: str, edge: Mapping[str, Any]) -> str:
    name, tier = LONG_NAMES[drawing.metric], f", {edge['tier']}" if edge["tier"] else ""
    lines = [f"<b>{edge['src']} → {edge['dst']}</b> ({pairing}{tier})", f"{name} {edge['score']:.4g}"]
    for null in NULLS:
        if edge.get(f"p_{null}", math.nan) == edge.get(f"p_{null}"):
            expected = f"expected {edge[f'null_{null}']:.4g}"
            lines.append(f"{null} null: {expected}, p = {edge[f'p_{null}']:.2g}, q = {edge[f'q_{null}']:.2g}")
    return "<br>".join(lines)


def _idle_heads(drawing: Drawing, result: Result) -> list[go.Scatter]:
    """Heads without an arrow, faint, and in grouped models the ties of kv heads to their query heads."""
    xs, ys = group_ties(dict(drawing.places), int(result.attrs["n_heads"]), int(result.attrs["n_kv_heads"]))
    ties = go.Scatter(x=xs, y=ys, mode="lines", line={"color": LINE, "width": 1}, hoverinfo="skip", showlegend=False)
    busy = _degrees(drawing)
    idle = [label for label in drawing.places if label not in busy]
    dots = go.Scatter(
        x=[drawing.places[label][0] for label in idle],
        y=[drawing.places[label][1] for label in idle],
        text=idle,
        mode="markers",
        marker={
            "size": drawing.dot / 4,
            "color": GREY,
            "opacity": 0.35,
            "symbol": ["square" if HeadLabel.parse(label).kv else "circle" for label in idle],
        },
        name="heads without an arrow",
        showlegend=False,
        hovertemplate="%{text}<extra></extra>",
    )
    return [ties, dots] if xs else [dots]


def _heads(drawing: Drawing, classes: Mapping[str, str]) -> list[go.Scatter]:
    """Heads with an arrow: one trace per class, in the order of the classes, the others last."""
    busy = _degrees(drawing)
    styles = class_styles(classes)
    names = [name for name in styles if any(classes.get(label) == name for label in busy)]
    traces = []
    for name in names:
        color, symbol = styles[name]
        members = {label: ends for label, ends in busy.items() if classes.get(label) == name}
        traces.append(_dots(drawing, members, class_text(name), color, symbol))
    others = {label: ends for label, ends in busy.items() if label not in classes}
    traces.append(_dots(drawing, others, "no class" if names else "heads", NO_CLASS, "circle"))
    for trace in traces:
        trace.showlegend = bool(names) and len(trace.x) > 0
    return traces


def _dots(drawing: Drawing, members: Mapping[str, tuple[int, int]], name: str, color: str, symbol: str) -> go.Scatter:
    labels = list(members)
    labeled = drawing.dot >= SMALLEST_LABELED
    return go.Scatter(
        x=[drawing.places[label][0] for label in labels],
        y=[drawing.places[label][1] for label in labels],
        mode="markers+text" if labeled else "markers",
        text=labels,
        textfont={"size": 10, "color": LABEL},
        customdata=[list(members[label]) for label in labels],
        marker={
            "size": drawing.dot,
            "color": color,
            "opacity": 1,
            "line": {"width": 1, "color": GREY},
            "symbol": ["square" if HeadLabel.parse(label).kv else symbol for label in labels],
        },
        name=name,
        legend="legend2",
        hovertemplate="<b>%{text}</b><br>%{customdata[0]} in, %{customdata[1]} out<extra>" + name + "</extra>",
    )


def _degrees(drawing: Drawing) -> dict[str, tuple[int, int]]:
    """Arrows that end and that start at each head which has any, in the order of the heads; of those that are on."""
    everyone = pd.concat(drawing.tables.values())
    shown = everyone[everyone["tier"] != BACKGROUND]
    ending, starting = ((shown if len(shown) else everyone)[side].value_counts() for side in ("dst", "src"))
    labels = sorted({*ending.index, *starting.index}, key=HeadLabel.parse)
    return {label: (int(ending.get(label, 0)), int(starting.get(label, 0))) for label in labels}
