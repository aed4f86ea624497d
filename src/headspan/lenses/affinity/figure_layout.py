"""How the figures of affinity name, color and place things: pairings, scores, classes, panels, and heads in a diagram.

Layout only: no score is computed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headspan.dims import PAIRINGS, HeadLabel
from headspan.errors import one_line
from headspan.lenses.affinity.schema import METRICS
from headspan.lenses.affinity.wiring import composing_pairings, head_node, metrics_of, pairings_of
from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, GREEN, VERMILION, styled

COLORS = {"OQ": BLUE, "OK": VERMILION, "OV": GREEN}
ROLE_NAMES = {"Q": "query", "K": "key", "V": "value", "O": "output"}
COLUMNS = 3
CLASS_COLORS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")
"""The light palette of Paul Tol: distinct to color-blind readers and pale enough for dark labels."""
CLASS_SYMBOLS = ("circle", "diamond", "hexagon")
FRAME_HEIGHT, ELLIPSE_HEIGHT = 190, 540
"""Height of everything around the heads, and of the ellipse."""
KV_DROP = 0.42
"""How far below its query heads a kv head stands, in layers: what it reads comes from below."""
POINTS = 17

Place = tuple[float, float]
Curve = npt.NDArray[np.float64]


def shown_pairings(result: Result) -> list[str]:
    """Those of OQ, OK, OV that a result holds; where it holds none of them, all that it holds."""
    return composing_pairings(result) or pairings_of(result)


def shown_metrics(result: Result) -> list[str]:
    """The scores that every shown pairing has, projection kernel first."""
    held = [metrics_of(result, pairing) for pairing in shown_pairings(result)]
    return [metric for metric in METRICS if all(metric in each for each in held)]


def pairing_name(pairing: str) -> str:
    """`OQ` as "OQ: output to query"."""
    return f"{pairing}: {ROLE_NAMES[pairing[0]]} to {ROLE_NAMES[pairing[1]]}"


def pairing_color(pairing: str) -> str:
    """The color a pairing has in every figure."""
    return COLORS.get(pairing, CATEGORIES[PAIRINGS.index(pairing) % len(CATEGORIES)])


def expected_score(result: Result, pairing: str, metric: str) -> tuple[float, float]:
    """Mean and standard deviation of a score under the haar null."""
    node = result[pairing]
    return float(node[f"{metric}_mean_null"]), float(node[f"{metric}_sd_null"])


def panels(titles: Sequence[str], **options: object) -> tuple[go.Figure, list[tuple[int, int]]]:
    """Panels in rows of three, and the row and column of each."""
    columns = min(COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    figure = make_subplots(rows, columns, subplot_titles=titles, **options)
    return figure, [(place // columns + 1, place % columns + 1) for place in range(len(titles))]


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


def grid_places(layers: Sequence[int], n_heads: int, n_kv_heads: int) -> dict[str, Place]:
    """Heads across, layers upward; a kv head of a grouped model stands once, under the middle of its group."""
    places: dict[str, Place] = {}
    for y, layer in enumerate(layers):
        places |= {str(HeadLabel(layer, head)): (float(head), float(y)) for head in range(n_heads)}
        if n_kv_heads < n_heads:
            group = n_heads // n_kv_heads
            for head in range(n_kv_heads):
                middle = head * group + (group - 1) / 2
                places[str(HeadLabel(layer, head, kv=True))] = (middle, y - KV_DROP)
    return places


def ellipse_places(labels: Iterable[str], aspect: float) -> dict[str, Place]:
    """Heads clockwise from the top by layer, equally far apart on an ellipse `aspect` times as wide as high."""
    ordered = sorted(set(labels), key=HeadLabel.parse)
    angle = np.linspace(0, 2 * np.pi, 2001)
    x, y = np.sin(angle), np.cos(angle)
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(aspect * np.diff(x), np.diff(y)))])
    stops = np.interp(np.arange(len(ordered)) * travelled[-1] / max(len(ordered), 1), travelled, angle)
    return {label: (float(np.sin(stop)), float(np.cos(stop))) for label, stop in zip(ordered, stops, strict=True)}


def group_ties(
    places: dict[str, Place], n_heads: int, n_kv_heads: int
) -> tuple[list[float | None], list[float | None]]:
    """Short lines from each kv head to the query heads that share it, as x and y with gaps; empty where none do."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    group = n_heads // n_kv_heads
    for label, (x, y) in places.items():
        head = HeadLabel.parse(label)
        if not head.kv and n_kv_heads < n_heads:
            shared = places[str(HeadLabel(head.layer, head.head // group, kv=True))]
            xs += [x, shared[0], None]
            ys += [y, shared[1], None]
    return xs, ys


def bow_curve(src: Place, dst: Place, bow: float) -> Curve:
    """A quadratic curve from src to dst as [point, 2]; `bow` moves its middle sideways by that share of its length."""
    start, end = np.array(src), np.array(dst)
    along = end - start
    return _quadratic(start, (start + end) / 2 + bow * np.array([along[1], -along[0]]), end)


def inward_curve(src: Place, dst: Place) -> Curve:
    """A quadratic curve from src to dst as [point, 2], drawn towards the middle, the more the longer it is."""
    start, end = np.array(src), np.array(dst)
    pull = 0.2 + 0.2 * float(np.hypot(*(end - start)))
    return _quadratic(start, (1 - pull) * (start + end) / 2, end)


def _quadratic(start: Curve, control: Curve, end: Curve) -> Curve:
    t = np.linspace(0, 1, POINTS)[:, None]
    curve: Curve = (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end
    return curve


def arrow_curve(curve: Curve, pixels: Place, radius: float, tip: float) -> Curve:
    """`curve` up to the edge of the dot it leads to; its last piece is as long as the arrow's tip.

    Parameters
    ----------
    curve
        [point, 2] in the units of the axes.
    pixels
        Pixels per unit across and upward.
    radius, tip
        Of the dot and of the arrow, in pixels.
    """
    away = np.hypot(*((curve - curve[-1]) * np.array(pixels)).T)
    fine = np.linspace(0, len(curve) - 1, 40 * len(curve))
    distance = np.interp(fine, np.arange(len(curve)), away)
    base, edge = (fine[max(int(np.argmax(distance < gap)) - 1, 0)] for gap in (radius + tip, radius))
    kept = [*np.arange(len(curve))[: int(base) + 1], base, edge]
    stops: Curve = np.stack([np.interp(kept, np.arange(len(curve)), curve[:, axis]) for axis in (0, 1)], axis=1)
    return stops
