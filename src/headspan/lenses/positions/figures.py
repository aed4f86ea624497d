"""The tables, drawn: spectra, capture, cosines of rows, and the position table's leading directions."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.lenses.positions.layer_figures import (
    alignment_figure,
    attention_overlaps,
    logit_figure,
    mlp_overlaps,
    table_overlaps,
)
from headspan.lenses.positions.schema import TABLE_NAMES, table_width
from headspan.lenses.positions.stream_figures import coordinate_figure, direction_figure, gain_figure
from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, CHANCE, ORANGE, styled

COLORS = {"P": ORANGE, "E": BLUE}
BAND = "rgba(138, 146, 154, 0.25)"
APART = 4.0
BEHIND = {
    "Spectra of the tables": ("singular_value",),
    "Attention and the tables": ("overlap",),
    "MLP and the tables": ("overlap",),
    "Position directions by coordinate": ("direction_entry",),
    "Gains and positions": ("gain", "coordinate_leverage"),
    "Layers along the tables": ("alignment", "energy_alignment"),
    "Angles between rows": ("cosine_density",),
}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    grid = result.grid()
    drawn = {"Spectra of the tables": spectrum_figure(grid)}
    if "capture" in grid:
        drawn["Capture"] = capture_figure(grid)
        drawn["Overlap of the tables"] = table_overlaps(grid)
    if "sparsity_gini" in grid:
        drawn["Position directions in the stream"] = direction_figure(grid)
        drawn["Position directions by coordinate"] = coordinate_figure(grid)
    if "curve" in grid:
        drawn["Position directions over positions"] = wave_figure(grid)
    if "gain_auc" in grid and np.isfinite(grid["gain_auc"].values).any():
        drawn["Gains and positions"] = gain_figure(grid)
    drawn["Attention and the tables"] = attention_overlaps(grid)
    if "out" in grid["matrix"].values:
        drawn["MLP and the tables"] = mlp_overlaps(grid)
    drawn["Layers along the tables"] = alignment_figure(grid)
    if "logit_share" in grid:
        drawn["Logits of layer 0"] = logit_figure(grid)
    drawn["Angles between rows"] = cosine_figure(grid)
    return drawn


def spectrum_figure(grid: xr.Dataset) -> go.Figure:
    """Singular values of each table as stored and centered, beside a random table of the same shape and energy."""
    names = [str(name) for name in grid["table"].values]
    titles = [_table_title(grid, name) for name in names]
    figure = make_subplots(1, len(names), subplot_titles=titles, horizontal_spacing=0.1)
    for column, name in enumerate(names, start=1):
        here = grid.sel(table=name)
        index = np.arange(1, grid.sizes["direction"] + 1)
        lines = (
            ("as stored", here["singular_value"].sel(centering="stored"), COLORS[name], "solid"),
            ("mean row removed", here["singular_value"].sel(centering="centered"), COLORS[name], "dot"),
            ("random table", here["singular_value_null"].sel(centering="stored"), CHANCE, "solid"),
        )
        for title, values, color, dash in lines:
            line = go.Scatter(
                x=index,
                y=values.values,
                mode="lines",
                name=f"{TABLE_NAMES[name]}, {title}" if title != "random table" else "random, same shape and energy",
                line={"color": color, "width": 2, "dash": dash},
                showlegend=title != "random table" or column == 1,
                hovertemplate="direction %{x}: %{y:.3g}<extra></extra>",
            )
            figure.add_trace(line, 1, column)
    ticks = [base * 10.0**power for power in range(-8, 8) for base in (1, 3)]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_yaxes(title_text="singular value", col=1)
    figure.update_xaxes(title_text="direction")
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Singular values of the tables", 440)


def _table_title(grid: xr.Dataset, name: str) -> str:
    here = grid.sel(table=name, centering="stored")
    return f"{TABLE_NAMES[name].capitalize()}: 90 % of the energy in {float(here['rank_90']):g} directions"


def capture_figure(grid: xr.Dataset) -> go.Figure:
    """Capture of every token direction by the top position directions, beside that expected at random."""
    choices = [str(choice) for choice in grid["k_choice"].values]
    sizes = [int(grid["capture_k"].sel(centering="stored", k_choice=choice)) for choice in choices]
    titles = [f"Top {size} position directions" for size in sizes]
    titles[-1] += " (90 % of the energy)"
    figure = make_subplots(1, len(choices), subplot_titles=titles, horizontal_spacing=0.08)
    index = np.arange(1, grid.sizes["direction"] + 1)
    for column, (choice, size) in enumerate(zip(choices, sizes, strict=True), start=1):
        here = grid.sel(k_choice=choice)
        _add_band(figure, column, index, size, table_width(grid))
        for centering, color in (("stored", BLUE), ("centered", ORANGE)):
            dots = go.Scatter(
                x=index,
                y=here["capture"].sel(centering=centering).values,
                mode="markers",
                name="tables as stored" if centering == "stored" else "mean rows removed",
                legendgroup=centering,
                showlegend=column == 1,
                marker={"size": 4, "color": color, "opacity": 0.75},
                hovertemplate="token direction %{x}: %{y:.3f}<extra></extra>",
            )
            figure.add_trace(dots, 1, column)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="share captured", col=1)
    figure.update_xaxes(title_text="token direction, largest singular value first")
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "How much of each token direction the top position directions capture", 460)


def _add_band(figure: go.Figure, column: int, index: np.ndarray, k: int, d: int) -> None:
    """Under the null: the mean k/d and the middle 95 % of one direction."""
    from scipy.special import betaincinv

    if not 0 < k < d:
        return
    low, high = (float(betaincinv(k / 2, (d - k) / 2, part)) for part in (0.025, 0.975))
    ends = [int(index[0]), int(index[-1])]
    band = go.Scatter(
        x=[*ends, *ends[::-1]],
        y=[low, low, high, high],
        mode="lines",
        fill="toself",
        fillcolor=BAND,
        line={"width": 0},
        name="random directions, 95 %",
        legendgroup="band",
        showlegend=column == 1,
        hoverinfo="skip",
    )
    mean = go.Scatter(
        x=ends,
        y=[k / d, k / d],
        mode="lines",
        line={"color": CHANCE, "width": 2},
        name="random directions, mean",
        legendgroup="null",
        showlegend=column == 1,
        hovertemplate="expected %{y:.3f}<extra></extra>",
    )
    figure.add_trace(band, 1, column)
    figure.add_trace(mean, 1, column)


def cosine_figure(grid: xr.Dataset) -> go.Figure:
    """Cosines of pairs of rows, beside those of random directions."""
    names = [str(name) for name in grid["table"].values]
    figure = make_subplots(1, len(names), subplot_titles=[f"Rows of {TABLE_NAMES[name]}" for name in names])
    for column, name in enumerate(names, start=1):
        for centering, dash in (("stored", "solid"), ("centered", "dot")):
            here = grid.sel(table=name, centering=centering)
            _add_density(figure, column, here, COLORS[name], dash, f"{TABLE_NAMES[name]}, {_form(centering)}")
        expected = grid["cosine_density_null"].sel(table=name, centering="stored")
        line = go.Scatter(
            x=grid["cosine"].values,
            y=expected.values,
            mode="lines",
            line={"color": CHANCE, "width": 2.5},
            name="random directions",
            showlegend=column == 1,
            hovertemplate="%{x:.2f}: %{y:.2f}<extra>null</extra>",
        )
        figure.add_trace(line, 1, column)
    figure.update_xaxes(title_text="cosine of two rows", range=[-1, 1])
    figure.update_yaxes(title_text="density", col=1)
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Angles between rows: is the table isotropic?", 440)


def _form(centering: str) -> str:
    return "as stored" if centering == "stored" else "mean row removed"


def _add_density(figure: go.Figure, column: int, here: xr.Dataset, color: str, dash: str, name: str) -> None:
    line = go.Scatter(
        x=here["cosine"].values,
        y=here["cosine_density"].values,
        mode="lines",
        line={"color": color, "width": 2, "dash": dash},
        name=name,
        hovertemplate="%{x:.2f}: %{y:.2f}<extra></extra>",
    )
    figure.add_trace(line, 1, column)


def wave_figure(grid: xr.Dataset) -> go.Figure:
    """The first directions as curves over positions, and how well one sinusoid explains each."""
    titles = ("The first directions over positions", "Share explained by one sinusoid")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.1, column_widths=[0.6, 0.4])
    here = grid.sel(centering="stored")
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
    expected = go.Scatter(
        x=[0.5, len(frequency) + 0.5],
        y=[float(here["wave_r2_null"].values[0])] * 2,
        mode="lines",
        line={"color": CHANCE, "width": 2.5},
        name="white noise",
        hovertemplate="expected %{y:.3f}<extra></extra>",
    )
    figure.add_trace(bars, 1, 2)
    figure.add_trace(expected, 1, 2)
