"""Attention maps side by side, drawn: a column for every setting, a row for every layer, words along the axes."""

from __future__ import annotations

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.lenses.map_panels import axis_texts, draw_boundaries, label_axes, map_colors, map_panel
from headspan.theme import styled

ROWS = 4
"""Layers in one figure."""
MOST_SETTINGS = 6
"""More columns than this cannot be read."""


def map_figures(grid: xr.Dataset) -> dict[str, go.Figure]:
    """All layers, four to a figure, on one color scale."""
    layers = grid["layer"].values
    parts = [layers[first : first + ROWS] for first in range(0, len(layers), ROWS)]
    colors = map_colors(grid["mean_map"].values)
    return {f"Attention maps, layers {part[0]} to {part[-1]}": map_grid(grid.sel(layer=part), colors) for part in parts}


def map_grid(grid: xr.Dataset, colors: dict[str, object]) -> go.Figure:
    """Settings across, layers down."""
    settings, layers = [str(name) for name in grid["setting"].values[:MOST_SETTINGS]], grid["layer"].values
    rows, titles = len(layers), settings
    figure = make_subplots(
        rows, len(settings), subplot_titles=titles, horizontal_spacing=0.02, vertical_spacing=0.14 / rows
    )
    places, texts = axis_texts(grid)
    for row, layer in enumerate(layers, start=1):
        for column, name in enumerate(settings, start=1):
            values = grid["mean_map"].sel(setting=name, layer=layer).values
            figure.add_trace(map_panel(grid, values, texts, named=False), row, column)
        figure.update_yaxes(title_text=f"layer {layer}", row=row, col=1)
    label_axes(figure, rows, places, texts)
    draw_boundaries(figure, grid, len(places))
    figure.update_layout(coloraxis=colors)
    left_out = grid.sizes["setting"] - len(settings)
    more = f"; {left_out} more settings are not drawn" if left_out else ""
    return styled(figure, f"Attention between words, mean over heads, setting by setting{more}", 190 + 300 * rows)
