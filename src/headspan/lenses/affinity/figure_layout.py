"""How the figures of affinity name, color and place things: pairings, scores, classes, panels, and heads in a diagram.

Layout only: no score is computed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

import numpy as np
import plotly.graph_objects as go

from headspan.dims import PAIRINGS, HeadLabel
from headspan.errors import one_line
from headspan.lenses.affinity.schema import METRICS
from headspan.lenses.affinity.wiring import composing_pairings, head_node, metrics_of, pairings_of
from headspan.lenses.wiring_layout import (
    KV_DROP,
    Curve,
    Place,
    quadratic_curve,
)
from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, GREEN, VERMILION, styled

COLORS = {"OQ": BLUE, "OK": VERMILION, "OV": GREEN}
CLASS_COLORS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")
"""The light palette of Paul Tol: distinct to color-blind readers and pale enough for dark labels."""
CLASS_SYMBOLS = ("circle", "diamond", "hexagon")
FRAME_HEIGHT, ELLIPSE_HEIGHT = 190, 540
"""Height of everything around the heads, and of the ellipse."""


def shown_pairings(result: Result) -> list[str]:
    """Those of OQ, OK, OV that a result holds; where it holds none of them, all that it holds."""
    return composing_pairings(result) or pairings_of(result)


def shown_metrics(result: Result) -> list[str]:
    """The scores that every shown pairing has, projection kernel first."""
    held = [metrics_of(result, pairing) for pairing in shown_pairings(result)]
    return [metric for metric in METRICS if all(metric in each for each in held)]


def pairing_color(pairing: str) -> str:
    """The color a pairing has in every figure."""
    return COLORS.get(pairing, CATEGORIES[PAIRINGS.index(pairing) % len(CATEGORIES)])


def expected_score(result: Result, pairing: str, metric: str) -> tuple[float, float]:
    """Mean and standard deviation of a score under the haar null."""
    node = result[pairing]
    return float(node[f"{metric}_mean_null"]), float(node[f"{metric}_sd_null"])


def class_text(name: str) -> str:
    """A class's name as a label. plotly reads tags in labels, and knows no entity for quotes, which stay."""
    return escape(one_line(name), quote=False)


def class_styles(classes: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Color and symbol of every class, in the order of the classes."""
    return {
        name: (
            CLASS_COLORS[place % len(CLASS_COLORS)],
            CLASS_SYMBOLS[place // len(CLASS_COLORS) % len(CLASS_SYMBOLS)],
        )
        for place, name in enumerate(dict.fromkeys(classes.values()))
    }


def layer_numbers(result: Result) -> list[int]:
    """The layers of the model that the result is about."""
    return sorted({int(layer) for layer in head_node(result, shown_pairings(result)[0])["src_layer"].values})


def grid_height(result: Result) -> int:
    """Room for every layer, and for two rows of dots in a layer where heads are grouped."""
    per_layer = 54 if result.attrs["n_kv_heads"] == result.attrs["n_heads"] else 92
    return min(1500, FRAME_HEIGHT + max(320, per_layer * len(layer_numbers(result))))


def layer_range(result: Result) -> tuple[float, float]:
    """Lower and upper end of the layer axis: half a layer beyond the dots, less where layers are few and tall."""
    n_layers = len(layer_numbers(result))
    margin = min(0.5, 0.06 * n_layers + 0.03)
    grouped = result.attrs["n_kv_heads"] < result.attrs["n_heads"]
    return -margin - (KV_DROP if grouped else 0.0), n_layers - 1 + margin


def add_frame(figure: go.Figure, title: str, result: Result, layout: str) -> None:
    """Title, height and axes: heads and layers counted along a grid, nothing around an ellipse."""
    if layout == "grid":
        _frame_grid(figure, title, result)
        return
    styled(figure, title, ELLIPSE_HEIGHT + FRAME_HEIGHT - 30)
    figure.update_xaxes(visible=False, range=[-1.09, 1.09])
    figure.update_yaxes(visible=False, range=[-1.09, 1.09])


def _frame_grid(figure: go.Figure, title: str, result: Result) -> None:
    layers, n_heads = layer_numbers(result), int(result.attrs["n_heads"])
    styled(figure, title, grid_height(result))
    figure.update_xaxes(title_text="head", range=[-0.6, n_heads - 0.4], zeroline=False, showgrid=False)
    figure.update_xaxes(tickvals=list(range(0, n_heads, 1 + n_heads // 24)))
    figure.update_yaxes(title_text="layer", range=layer_range(result), zeroline=False)
    figure.update_yaxes(tickvals=list(range(len(layers))), ticktext=[str(layer) for layer in layers])


def ellipse_places(labels: Iterable[str], aspect: float) -> dict[str, Place]:
    """Heads clockwise from the top by layer, equally far apart on an ellipse `aspect` times as wide as high."""
    ordered = sorted(set(labels), key=HeadLabel.parse)
    angle = np.linspace(0, 2 * np.pi, 2001)
    x, y = np.sin(angle), np.cos(angle)
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(aspect * np.diff(x), np.diff(y)))])
    stops = np.interp(np.arange(len(ordered)) * travelled[-1] / max(len(ordered), 1), travelled, angle)
    return {label: (float(np.sin(stop)), float(np.cos(stop))) for label, stop in zip(ordered, stops, strict=True)}


def inward_curve(src: Place, dst: Place) -> Curve:
    """A quadratic curve from src to dst as [point, 2], drawn towards the middle, the more the longer it is."""
    start, end = np.array(src), np.array(dst)
    pull = 0.2 + 0.2 * float(np.hypot(*(end - start)))
    return quadratic_curve(start, (1 - pull) * (start + end) / 2, end)
