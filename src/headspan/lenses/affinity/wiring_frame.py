"""What stands around the heads of a wiring diagram: its height, axes and ticks, for a grid or an ellipse."""

from __future__ import annotations

import plotly.graph_objects as go
import xarray as xr

from headspan.lenses.affinity.edges import pairing_node
from headspan.lenses.affinity.pairing_figures import shown_pairings
from headspan.lenses.affinity.wiring_places import KV_DROP
from headspan.theme import styled

FRAME_HEIGHT, ELLIPSE_HEIGHT = 190, 540
"""Height of everything around the heads, and of the ellipse."""


def layer_numbers(result: xr.DataTree) -> list[int]:
    """The layers of the model that the result is about."""
    return [int(layer) for layer in pairing_node(result, shown_pairings(result)[0])["src_layer"].values]


def grid_height(result: xr.DataTree) -> int:
    """Room for every layer, and for two rows of dots in a layer where heads are grouped."""
    per_layer = 54 if result.attrs["n_kv_heads"] == result.attrs["n_heads"] else 92
    return min(1500, FRAME_HEIGHT + max(320, per_layer * len(layer_numbers(result))))


def layer_range(result: xr.DataTree) -> tuple[float, float]:
    """Lower and upper end of the layer axis: half a layer beyond the dots, less where layers are few and tall."""
    n_layers = len(layer_numbers(result))
    margin = min(0.5, 0.06 * n_layers + 0.03)
    grouped = result.attrs["n_kv_heads"] < result.attrs["n_heads"]
    return -margin - (KV_DROP if grouped else 0.0), n_layers - 1 + margin


def add_frame(figure: go.Figure, title: str, result: xr.DataTree, layout: str) -> None:
    """Title, height and axes: heads and layers counted along a grid, nothing around an ellipse."""
    if layout == "grid":
        _frame_grid(figure, title, result)
        return
    styled(figure, title, ELLIPSE_HEIGHT + FRAME_HEIGHT - 30)
    figure.update_xaxes(visible=False, range=[-1.09, 1.09])
    figure.update_yaxes(visible=False, range=[-1.09, 1.09])


def _frame_grid(figure: go.Figure, title: str, result: xr.DataTree) -> None:
    layers, n_heads = layer_numbers(result), int(result.attrs["n_heads"])
    styled(figure, title, grid_height(result))
    figure.update_xaxes(title_text="head", range=[-0.6, n_heads - 0.4], zeroline=False, showgrid=False)
    figure.update_xaxes(tickvals=list(range(0, n_heads, 1 + n_heads // 24)))
    figure.update_yaxes(title_text="layer", range=layer_range(result), zeroline=False)
    figure.update_yaxes(tickvals=list(range(len(layers))), ticktext=[str(layer) for layer in layers])
