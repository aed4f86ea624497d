"""The layered diagram of all parts: tables below, layers upward with their MLP beside the heads, logits on top.

1. A head is one dot for its Q, K, V and O; kv heads of a grouped model stand below their group. The MLP of a layer
   stands to the right, half a layer higher where it reads what the layer's attention wrote, level with the heads where
   both read the same stream.
2. Of each kind of edge those that stand out are drawn, the farthest out first, at most `top` of them. Kinds of which no
   null makes tiers show their strongest, thin and off until their legend entry is clicked.
3. Edges of one kind share a color and a legend entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from headspan.dims import HeadLabel
from headspan.finding import percent
from headspan.lenses.graph import BACKGROUND, IS_STRONG, UNKNOWN
from headspan.lenses.wiring.graph import edges, ends, relations
from headspan.lenses.wiring.parts import ENCODER
from headspan.lenses.wiring_layout import Place, arrow_curve, bow_curve, grid_places, group_ties
from headspan.result import Result
from headspan.theme import BLUE, GREEN, GREY, LINE, ORANGE, PURPLE, SKY, VERMILION, YELLOW, styled

MLP_LINE, LOGITS_LINE = "#A08A00", "#7A5195"
"""Darker than the fill of their marks, so that thin lines show."""
COLORS = {
    "W_E": ORANGE,
    "W_pos": PURPLE,
    "O to Q": BLUE,
    "O to K": VERMILION,
    "O to V": GREEN,
    "O to MLP": SKY,
    "MLP": MLP_LINE,
    "logits": LOGITS_LINE,
    ENCODER: GREEN,
}
NAMES = {
    "W_E": "from the token table",
    "W_pos": "from the position table",
    "O to Q": "head to query",
    "O to K": "head to key",
    "O to V": "head to value",
    "O to MLP": "head to MLP",
    "MLP": "from an MLP",
    "logits": "to the logits",
    ENCODER: "from the encoder",
}
DRAWN = 14
"""Edges of each group that are drawn."""
PLOT_WIDTH, LAYER_HEIGHT, SMALLEST_LABELED = 860, 62, 18
BOWS = {"O to Q": -0.09, "O to K": 0.05, "O to V": 0.13, "O to MLP": 0.08, "MLP": -0.08, "logits": 0.1}
FILLS = {"W_E": ORANGE, "W_pos": PURPLE, "MLP": YELLOW, "logits": "#B39BC8", "head": "#DDDDDD"}


@dataclass(frozen=True)
class Canvas:
    """Places of all parts by label, and pixels per unit."""

    places: dict[str, Place]
    pixels: Place
    dot: float
    height: int


def wiring_diagram(result: Result, top: int = DRAWN) -> go.Figure:
    """All parts, and of each kind of edge up to `top` that stand out."""
    canvas, figure = _canvas(result), go.Figure()
    n_heads, n_kv = int(result.attrs["n_heads"]), int(result.attrs["n_kv_heads"])
    heads = {label: place for label, place in canvas.places.items() if label[0] == "L" and _is_head(label)}
    xs, ys = group_ties(heads, n_heads, n_kv)
    figure.add_trace(
        go.Scatter(x=xs, y=ys, mode="lines", line={"color": LINE, "width": 1}, hoverinfo="skip", showlegend=False)
    )
    busy: set[str] = set()
    for group in COLORS:
        table, off = _drawn(result, group, top)
        if len(table):
            figure.add_traces(_arrows(canvas, group, table, off))
            busy |= set() if off else {*table["src_label"], *table["dst_label"]}
    figure.add_traces(_dots(canvas, busy))
    title = "The whole wiring: edges that stand out, of each kind the farthest out"
    if not busy - {"W_E", "W_pos", "logits"}:
        title = "The whole wiring: no edge stands out; click a legend entry for the strongest"
    layers = _layers(result)
    styled(figure, title, canvas.height)
    left = min([0.0, *(x for x, _ in canvas.places.values())]) - 1.0
    figure.update_xaxes(visible=False, range=[left, n_heads + 1.2])
    figure.update_yaxes(range=[-1.7, len(layers) + 0.75], zeroline=False, title_text="layer", showgrid=False)
    figure.update_yaxes(tickvals=list(range(len(layers))), ticktext=[str(layer) for layer in layers])
    figure.update_layout(hovermode="closest", legend={"y": -0.02, "yanchor": "top", "itemsizing": "trace"})
    return figure


def _is_head(label: str) -> bool:
    own = label.removeprefix(f"{ENCODER}.")
    return own[0] == "L" and not own.endswith("MLP")


def _layers(result: Result) -> list[int]:
    parts = result["parts"]
    own = ~np.isnan(parts["part_layer"].values) & ~_of_encoder(parts["kind"].values)
    return sorted({int(layer) for layer in parts["part_layer"].values[own]})


def _of_encoder(kinds: np.ndarray) -> np.ndarray:
    return np.array([str(kind).startswith(ENCODER) for kind in kinds], dtype=bool)


def _encoder_places(result: Result, height: int) -> dict[str, Place]:
    """The encoder's parts to the left of the decoder's, from the bottom to its top: tables, then layers."""
    parts = result["parts"]
    chosen = parts["label"].values[_of_encoder(parts["kind"].values)]
    labels = [str(label).removeprefix(f"{ENCODER}.") for label in chosen]
    heads = [HeadLabel.parse(label) for label in labels if _is_head(label)]
    width = 1 + max((label.head for label in heads), default=0)
    layers = [int(layer) for layer in parts["part_layer"].values[_of_encoder(parts["kind"].values)] if layer == layer]
    step = height / (1 + max(layers, default=0))
    places: dict[str, Place] = {}
    for label in labels:
        if _is_head(label):
            at = HeadLabel.parse(label)
            places[label] = (at.head - width - 2.2, at.layer * step)
        elif label.endswith("MLP"):
            places[label] = (-1.8, (int(label[1:-3]) + 0.45) * step)
        else:
            places[label] = (-2.2 - width / 2 + (0.8 if label == "W_pos" else -0.8), -1.35)
    return {f"{ENCODER}.{label}": place for label, place in places.items()}


def _canvas(result: Result) -> Canvas:
    layers, kinds = _layers(result), set(result["parts"]["kind"].values)
    n_heads, n_kv = int(result.attrs["n_heads"]), int(result.attrs["n_kv_heads"])
    places = grid_places(layers, n_heads, n_kv) if kinds & {"Q", "K", "V", "O"} else {}
    if kinds & {"MLP in", "MLP out"}:
        above = 0.0 if result.attrs["parallel"] else 0.45
        places |= {f"L{layer}MLP": (n_heads + 0.4, y + above) for y, layer in enumerate(layers)}
    middle = (n_heads - 1) / 2
    both = {"W_E", "W_pos"} <= kinds
    apart = max(0.8, n_heads / 5) if both else 0.0
    places |= {"W_E": (middle - apart, -1.35)} if "W_E" in kinds else {}
    places |= {"W_pos": (middle + apart, -1.35)} if "W_pos" in kinds else {}
    places |= {"logits": (middle, len(layers) + 0.4)} if "logits" in kinds else {}
    places |= _encoder_places(result, len(layers))
    across = n_heads + 2.2 - min([0.0, *(x for x, _ in places.values())])
    height = min(1500, 170 + int(max(LAYER_HEIGHT, 360 // len(layers)) * (len(layers) + 2.4)))
    pixels = (PLOT_WIDTH / across, (height - 150) / (len(layers) + 2.45))
    dot = min(30.0, 0.8 * min(pixels)) * (0.75 if n_kv < n_heads else 1.0)
    return Canvas(places, pixels, dot, height)


def _drawn(result: Result, group: str, top: int) -> tuple[pd.DataFrame, bool]:
    """The edges of a group to draw, and whether they are off at first because no null makes tiers of them."""
    names = [name for name in relations(result) if _group(name) == group]
    if not names:
        return pd.DataFrame(), True
    everyone = pd.concat([edges(result, name) for name in names], ignore_index=True)
    out = everyone[~everyone["tier"].isin((BACKGROUND, UNKNOWN))]
    if len(out):
        return out.sort_values("z", ascending=False, kind="stable").head(top), False
    strongest = everyone.assign(ratio=everyone["score"] / everyone["rotation"])
    return strongest.sort_values("ratio", ascending=False, kind="stable").head(top), True


def _group(relation: str) -> str:
    src, dst = ends(relation)
    if src.startswith(ENCODER):
        return ENCODER
    if dst == "logits":
        return "logits"
    return relation if relation in COLORS else src


def _arrows(canvas: Canvas, group: str, table: pd.DataFrame, off: bool) -> list[go.Scatter]:
    """One trace per edge, and one empty trace that stands in the legend for all of them."""
    color, shown = COLORS[group], "legendonly" if off else True
    style = {"legendgroup": group, "line": {"color": color, "width": 3}, "visible": shown}
    why = "none stands out" if (table["tier"] == BACKGROUND).any() else "too few to compare"
    name = NAMES[group] + (f" (strongest; {why})" if off else "")
    traces = [go.Scatter(x=[None], y=[None], mode="lines", name=name, **style)]
    for edge in table[::-1].to_dict("records"):
        strong = edge["tier"] == IS_STRONG
        tip = 12.0 if strong else 9.0
        curve = bow_curve(canvas.places[edge["src_label"]], canvas.places[edge["dst_label"]], BOWS.get(group, 0.0))
        curve = arrow_curve(curve, canvas.pixels, canvas.dot / 2, tip)
        width = 3.0 if strong else 1.1 if off else 1.8
        traces.append(
            go.Scatter(
                x=curve[:, 0].round(4),
                y=curve[:, 1].round(4),
                mode="lines+markers",
                line={"color": color, "width": width, "simplify": False},
                marker={
                    "symbol": "arrow",
                    "size": [0] * (len(curve) - 1) + [tip],
                    "angleref": "previous",
                    "color": color,
                    "line": {"width": 0},
                },
                opacity=0.9 if strong else 0.7,
                visible=shown,
                name=f"{edge['src']} → {edge['dst']}",
                meta={name: edge[name] for name in ("relation", "src", "dst", "tier")},
                legendgroup=group,
                showlegend=False,
                hovertemplate=f"<b>{edge['src']} → {edge['dst']}</b><br>share {percent(edge['score'], 1)}, expected "
                f"{percent(edge['expected'], 1)} ({edge['null']})<br>z = {edge['z']:.1f}, q = "
                f"{edge['q']:.2g}<extra></extra>",
            )
        )
    return traces


def _dots(canvas: Canvas, busy: set[str]) -> list[go.Scatter]:
    """Heads with an arrow large and labeled, the others faint; MLPs as squares; tables and logits as wide marks."""
    traces = []
    for kind, symbol in (("idle", "circle"), ("head", "circle"), ("MLP", "square"), ("ends", "square")):
        labels = [label for label in canvas.places if _style(label, busy) == kind]
        idle, ends_here = kind == "idle", kind == "ends"
        shapes = ["square" if _is_kv(label) else symbol for label in labels]
        fill = [FILLS.get("MLP" if kind == "MLP" else label if ends_here else "head", GREY) for label in labels]
        size = canvas.dot / 4 if idle else canvas.dot * (1.25 if ends_here else 1.0)
        traces.append(
            go.Scatter(
                x=[canvas.places[label][0] for label in labels],
                y=[canvas.places[label][1] for label in labels],
                text=labels,
                mode="markers" if idle or (canvas.dot < SMALLEST_LABELED and not ends_here) else "markers+text",
                textposition="middle right" if ends_here or kind == "MLP" else "middle center",
                textfont={"size": 12 if ends_here else 9},
                marker={
                    "size": size,
                    "color": GREY if idle else fill,
                    "opacity": 0.35 if idle else 1.0,
                    "symbol": shapes,
                    "line": {"width": 0 if idle else 1, "color": GREY},
                },
                hovertemplate="%{text}<extra></extra>",
                showlegend=False,
                cliponaxis=False,
            )
        )
    return traces


def _is_kv(label: str) -> bool:
    return label[0] == "L" and _is_head(label) and HeadLabel.parse(label).kv


def _style(label: str, busy: set[str]) -> str:
    if not _is_head(label):
        return "MLP" if label.endswith("MLP") else "ends"
    return "head" if label in busy else "idle"
