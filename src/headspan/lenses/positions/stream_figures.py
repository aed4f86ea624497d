"""Position directions in the coordinates of the stream, drawn: how sparse they are, and the gains they meet."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import LAYER
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREY, ORANGE, styled


def direction_figure(grid: xr.Dataset) -> go.Figure:
    """Squared entries of the first directions by coordinate, and how many coordinates each direction needs."""
    titles = ("Mass of the first directions by coordinates", "Coordinates that hold 90 % of a direction")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.1, column_widths=[0.6, 0.4])
    here = grid.sel(centering="stored")
    masses = here["direction_entry"].values ** 2
    index = np.arange(1, masses.shape[1] + 1)
    for place, values in enumerate(masses):
        if np.isnan(values).all():
            continue
        order = np.argsort(-values, kind="stable")
        line = go.Scatter(
            x=index,
            y=np.cumsum(values[order]),
            customdata=order,
            mode="lines",
            name=f"direction {place + 1}",
            line={"color": CATEGORIES[place], "width": 2},
            hovertemplate="first %{x} coordinates: %{y:.0%}<br>the last is coordinate %{customdata}<extra></extra>",
        )
        figure.add_trace(line, 1, 1)
    random = go.Scatter(
        x=index,
        y=here["sorted_mass_null"].values,
        mode="lines",
        name="random direction",
        legendgroup="null",
        line={"color": CHANCE, "width": 2.5},
        hovertemplate="first %{x} coordinates: %{y:.0%}<extra>null</extra>",
    )
    figure.add_trace(random, 1, 1)
    _add_counts(figure, here)
    figure.update_xaxes(title_text="coordinates of the stream, largest mass first", col=1)
    figure.update_yaxes(title_text="mass so far", tickformat=".0%", range=[0, 1.02], col=1)
    figure.update_xaxes(title_text="direction", col=2)
    figure.update_yaxes(rangemode="tozero", col=2)
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Are position directions sparse in the stream?", 460)


def _add_counts(figure: go.Figure, here: xr.Dataset) -> None:
    count = here["sparsity_coordinates_90"].values
    index = np.arange(1, len(count) + 1)
    bars = go.Bar(
        x=index,
        y=count,
        marker_color=BLUE,
        name="coordinates",
        showlegend=False,
        hovertemplate="direction %{x}: %{y:.0f} coordinates<extra></extra>",
    )
    expected = go.Scatter(
        x=[0.5, len(count) + 0.5],
        y=[float(here["sparsity_coordinates_90_null"][0])] * 2,
        mode="lines",
        line={"color": CHANCE, "width": 2.5},
        name="random direction",
        legendgroup="null",
        showlegend=False,
        hovertemplate="expected %{y:.0f}<extra></extra>",
    )
    figure.add_trace(bars, 1, 2)
    figure.add_trace(expected, 1, 2)


def coordinate_figure(grid: xr.Dataset) -> go.Figure:
    """Entries of the first directions, coordinate by coordinate, as steps down to zero."""
    here = grid.sel(centering="stored")["direction_entry"].values
    known = [values for values in here if np.isfinite(values).all()]
    titles = [f"direction {place + 1}" for place in range(len(known))]
    figure = make_subplots(len(known), 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.05)
    for place, values in enumerate(known):
        # One outline for all coordinates: as bars they would be thousands of elements narrower than a pixel.
        steps = go.Scatter(x=np.arange(len(values)), y=values, mode="lines", line={"color": BLUE, "width": 1})
        steps.update(line_shape="hvh", fill="tozeroy", fillcolor=BLUE, showlegend=False)
        steps.update(hovertemplate="coordinate %{x}: %{y:.3f}<extra></extra>")
        figure.add_trace(steps, place + 1, 1)
    figure.update_xaxes(title_text="coordinate of the stream", row=len(known))
    figure.update_yaxes(title_text="entry", nticks=4)
    return styled(figure, "The first position directions by coordinate", 110 + 115 * len(known))


def gain_figure(grid: xr.Dataset) -> go.Figure:
    """Gain against leverage of every coordinate in one layer, and by layer how often the carrying ones are larger."""
    layer = int(grid.attrs["shown_layer"])
    titles = (f"Coordinates, norm of layer {layer}", "Layers: gains of carrying coordinates against others")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.12)
    here = grid.sel(centering="stored")
    chosen, gain = here["coordinate_chosen"].values.astype(bool), np.abs(grid["gain"].sel({LAYER: layer}).values)
    for name, members, color in (("other coordinates", ~chosen, GREY), ("carry positions", chosen, ORANGE)):
        dots = go.Scatter(x=here["coordinate_leverage"].values[members], y=gain[members], mode="markers", name=name)
        dots.update(marker={"color": color, "size": 5}, customdata=np.flatnonzero(members))
        hover = "coordinate %{customdata}: leverage %{x:.3f}, gain %{y:.3f}<extra></extra>"
        figure.add_trace(dots.update(hovertemplate=hover), 1, 1)
    layers, auc, q = (grid[name].values for name in (LAYER, "gain_auc", "gain_auc_q"))
    line = go.Scatter(x=layers, y=auc, customdata=q, mode="lines+markers", line={"color": BLUE}, showlegend=False)
    hover = "layer %{x}: AUC %{y:.3f}, q = %{customdata:.2g}<extra></extra>"
    figure.add_trace(line.update(hovertemplate=hover), 1, 2)
    null = go.Scatter(x=[layers[0], layers[-1]], y=[0.5, 0.5], mode="lines", name="a random set of coordinates")
    figure.add_trace(null.update(line={"color": CHANCE, "dash": "dot", "width": 2.5}, hoverinfo="skip"), 1, 2)
    figure.update_xaxes(title_text="leverage in the top position directions", col=1)
    figure.update_yaxes(title_text="size of the gain", rangemode="tozero", col=1)
    figure.update_xaxes(title_text="layer", col=2)
    figure.update_yaxes(title_text="AUC", range=[0, 1], col=2)
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Do norms turn down the coordinates that carry positions?", 430)
