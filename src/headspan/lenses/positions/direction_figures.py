"""The position table's leading directions: entries in the stream, curves over positions, and both beside chance."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.theme import BLUE, CATEGORIES, CHANCE, styled

APART = 4.0


def direction_figure(result: xr.Dataset) -> go.Figure:
    """Squared entries of the first directions by coordinate, and how many coordinates each direction needs."""
    titles = ("Mass of the first directions by coordinates", "Coordinates that hold 90 % of a direction")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.1, column_widths=[0.6, 0.4])
    here = result.sel(centring="stored")
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
        y=here["sorted_mass_chance"].values,
        mode="lines",
        name="random direction",
        legendgroup="chance",
        line={"color": CHANCE, "width": 2.5},
        hovertemplate="first %{x} coordinates: %{y:.0%}<extra>chance</extra>",
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
    chance = go.Scatter(
        x=[0.5, len(count) + 0.5],
        y=[float(here["sparsity_coordinates_90_chance"][0])] * 2,
        mode="lines",
        line={"color": CHANCE, "width": 2.5},
        name="random direction",
        legendgroup="chance",
        showlegend=False,
        hovertemplate="chance %{y:.0f}<extra></extra>",
    )
    figure.add_trace(bars, 1, 2)
    figure.add_trace(chance, 1, 2)


def wave_figure(result: xr.Dataset) -> go.Figure:
    """The first directions as curves over positions, and how well one sinusoid explains each."""
    titles = ("The first directions over positions", "Share explained by one sinusoid")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.1, column_widths=[0.6, 0.4])
    here = result.sel(centring="stored")
    for place, values in enumerate(here["curve"].values):
        if np.isnan(values).all():
            continue
        line = go.Scatter(
            x=np.arange(len(values)),
            # One above the other: a unit vector's entries are about 1/sqrt(n), so this keeps waves apart.
            y=values * np.sqrt(len(values)) / APART - place,
            customdata=values,
            mode="lines",
            name=f"direction {place + 1}",
            line={"color": CATEGORIES[place], "width": 1.4},
            showlegend=False,
            hovertemplate=f"direction {place + 1}, position %{{x}}: %{{customdata:.3f}}<extra></extra>",
        )
        figure.add_trace(line, 1, 1)
    _add_fits(figure, here)
    shown = len(here["curve"])
    figure.update_xaxes(title_text="position", col=1)
    ticks = {"tickvals": [-place for place in range(shown)], "ticktext": [str(place + 1) for place in range(shown)]}
    figure.update_yaxes(title_text="direction", range=[-shown + 0.4, 0.9], zeroline=False, **ticks, col=1)
    figure.update_xaxes(title_text="direction", col=2)
    figure.update_yaxes(range=[0, 1], tickformat=".0%", col=2)
    figure.update_layout(legend_y=-0.2, showlegend=True)
    return styled(figure, "Are position directions sinusoids?", 480)


def _add_fits(figure: go.Figure, here: xr.Dataset) -> None:
    frequency = here["wave_frequency"].values
    bars = go.Bar(
        x=np.arange(1, len(frequency) + 1),
        y=here["wave_r2"].values,
        customdata=frequency,
        marker_color=BLUE,
        showlegend=False,
        hovertemplate="direction %{x}: R² %{y:.2f} at %{customdata:g} cycles per context<extra></extra>",
    )
    chance = go.Scatter(
        x=[0.5, len(frequency) + 0.5],
        y=[float(here["wave_r2_chance"].values[0])] * 2,
        mode="lines",
        line={"color": CHANCE, "width": 2.5},
        name="white noise",
        hovertemplate="chance %{y:.3f}<extra></extra>",
    )
    figure.add_trace(bars, 1, 2)
    figure.add_trace(chance, 1, 2)
