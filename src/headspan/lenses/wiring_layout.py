"""Heads on a grid, arrows between them, and panels of pairings: the layout of figures that draw wiring.

Layout only: no score is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headspan.dims import HeadLabel

Place = tuple[float, float]
Curve = npt.NDArray[np.float64]

ROLE_NAMES = {"Q": "query", "K": "key", "V": "value", "O": "output"}
COLUMNS = 3
KV_DROP = 0.42
"""How far below its query heads a kv head stands, in layers: what it reads comes from below."""
POINTS = 17


def pairing_name(pairing: str) -> str:
    """`OQ` as "OQ: output to query"."""
    return f"{pairing}: {ROLE_NAMES[pairing[0]]} to {ROLE_NAMES[pairing[1]]}"


def panels(titles: Sequence[str], **options: object) -> tuple[go.Figure, list[tuple[int, int]]]:
    """Panels in rows of three, and the row and column of each."""
    columns = min(COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    figure = make_subplots(rows, columns, subplot_titles=titles, **options)
    return figure, [(place // columns + 1, place % columns + 1) for place in range(len(titles))]


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
    return quadratic_curve(start, (start + end) / 2 + bow * np.array([along[1], -along[0]]), end)


def quadratic_curve(start: Curve, control: Curve, end: Curve) -> Curve:
    """The quadratic Bézier curve of three points as [point, 2]."""
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
