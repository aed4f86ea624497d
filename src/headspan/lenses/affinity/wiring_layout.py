"""Where the heads of a wiring diagram stand and which way its lines run. Layout only: no score is computed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from headspan.dims import HeadLabel

Place = tuple[float, float]
Curve = npt.NDArray[np.float64]

KV_DROP = 0.42
"""How far below its query heads a kv head stands, in layers: what it reads comes from below."""
POINTS = 17


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


def bowed(src: Place, dst: Place, bow: float) -> Curve:
    """A quadratic curve from src to dst as [point, 2]; `bow` moves its middle sideways by that share of its length."""
    start, end = np.array(src), np.array(dst)
    along = end - start
    return _quadratic(start, (start + end) / 2 + bow * np.array([along[1], -along[0]]), end)


def inward(src: Place, dst: Place) -> Curve:
    """A quadratic curve from src to dst as [point, 2], drawn towards the middle, the more the longer it is."""
    start, end = np.array(src), np.array(dst)
    pull = 0.2 + 0.2 * float(np.hypot(*(end - start)))
    return _quadratic(start, (1 - pull) * (start + end) / 2, end)


def _quadratic(start: Curve, control: Curve, end: Curve) -> Curve:
    t = np.linspace(0, 1, POINTS)[:, None]
    curve: Curve = (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end
    return curve


def stopped(curve: Curve, pixels: Place, radius: float, tip: float) -> Curve:
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
