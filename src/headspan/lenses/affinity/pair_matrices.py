"""Every pair at once: source heads upward, destination heads across, one panel per pairing, one scale for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from headspan.dims import PAIR_DIMS, HeadLabel
from headspan.lenses.affinity import VARIABLES
from headspan.lenses.affinity.edges import pairing_node
from headspan.lenses.affinity.pairing_figures import (
    METRIC_NAMES,
    chance_of,
    pairing_name,
    panels,
    shown_metrics,
    shown_pairings,
)
from headspan.theme import SEQUENTIAL, styled

MOST_HEADS = 500
"""With more heads than this on a side, a cell is the strongest pair of two layers."""
MOST_TICKS = 8
SATURATION = 0.995
"""Share of cells within the colour scale: a few very strong pairs would leave all others dark."""


def affinity_matrices(result: xr.DataTree, metric: str | None = None) -> go.Figure:
    """Score of every source head with every destination head; pairs that cannot compose stay blank."""
    metric = metric or shown_metrics(result)[0]
    nodes = {pairing: pairing_node(result, pairing) for pairing in shown_pairings(result)}
    by_head = all(node.sizes["src_layer"] * node.sizes["src_head"] <= MOST_HEADS for node in nodes.values())
    figure, where = panels([pairing_name(pairing) for pairing in nodes], horizontal_spacing=0.05)
    shown = []
    for place, node in zip(where, nodes.values(), strict=True):
        scores = node[VARIABLES[metric][0]].transpose(*PAIR_DIMS)
        shown.append(scores if by_head else _strongest(scores))
        figure.add_trace(_matrix(shown[-1], node.attrs), *place)
        _add_layer_ticks(figure, shown[-1], place)
    figure.update_xaxes(title_text="layer that reads", showgrid=False, zeroline=False, tickangle=0)
    figure.update_yaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="layer that writes", col=1)
    figure.update_layout(coloraxis=_colours(shown, chance_of(next(iter(nodes.values())), metric)[0], by_head))
    unit = "pair of heads" if by_head else "pair of layers (its strongest heads)"
    title = f"{METRIC_NAMES[metric].capitalize()} of every {unit} that can compose"
    return styled(figure, title, 110 + 270 * where[-1][0])


def _strongest(scores: xr.DataArray) -> xr.DataArray:
    """One head per layer, standing for the layer's best."""
    return scores.max(["src_head", "dst_head"], keepdims=True)


def _matrix(scores: xr.DataArray, attributes: Mapping[str, Any]) -> go.Heatmap:
    sides = []
    for side in ("src", "dst"):
        layers, n_heads = scores[f"{side}_layer"].values, scores.sizes[f"{side}_head"]
        labels = [
            HeadLabel(int(layer), head, bool(attributes[f"{side}_kv"])) for layer in layers for head in range(n_heads)
        ]
        sides.append([str(label) if len(labels) > len(layers) else f"layer {label.layer}" for label in labels])
    return go.Heatmap(
        x=sides[1],
        y=sides[0],
        z=scores.values.reshape(len(sides[0]), len(sides[1])).astype("float32"),
        coloraxis="coloraxis",
        meta={"pairing": attributes["pairing"]},
        hoverongaps=False,
        hovertemplate="%{y} → %{x}: %{z:.4g}<extra></extra>",
    )


def _add_layer_ticks(figure: go.Figure, scores: xr.DataArray, place: tuple[int, int]) -> None:
    """A tick at the middle of every layer, or of every second, third, ... where they would touch.

    The axes leave out the last layer as a source and the first as a destination, which have no pairs.
    """
    for side, update in (("src", figure.update_yaxes), ("dst", figure.update_xaxes)):
        layers, width = scores[f"{side}_layer"].values, scores.sizes[f"{side}_head"]
        step = -(-len(layers) // MOST_TICKS)
        ticks = range(0, len(layers), step)
        update(
            tickvals=[width * tick + (width - 1) / 2 for tick in ticks],
            ticktext=[str(layers[tick]) for tick in ticks],
            range=[-0.5 + (side == "dst") * width, -0.5 + (len(layers) - (side == "src")) * width],
            row=place[0],
            col=place[1],
        )


def _colours(shown: Sequence[xr.DataArray], chance: float, by_head: bool) -> dict[str, object]:
    """One sequential scale over all panels. Its bar names chance, and its top, which a few strongest cells exceed."""
    word = "chance" if by_head else "chance<br>of one pair"
    low = min(chance, *(float(scores.min()) for scores in shown))
    high = max(chance, *(float(scores.quantile(SATURATION, method="lower")) for scores in shown))
    exceeded = any(float(scores.max()) > high for scores in shown)
    names = {low: f"{low:.3g}", high: f"{high:.3g}{'+' if exceeded else ''}", chance: f"{chance:.3g} {word}"}
    named = [value for value in names if value == chance or abs(value - chance) > 0.07 * (high - low)]
    bar = {"tickvals": named, "ticktext": [names[value] for value in named]}
    return {"colorscale": SEQUENTIAL, "cmin": low, "cmax": high, "colorbar": bar}
