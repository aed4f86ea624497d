"""The two tables by themselves: spectra, capture with its chance band, cosines of rows."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.theme import BLUE, CHANCE, ORANGE, styled

TABLE_NAMES = {"P": "positions", "E": "tokens"}
COLOURS = {"P": ORANGE, "E": BLUE}
BAND = "rgba(138, 146, 154, 0.25)"


def spectrum_figure(result: xr.Dataset) -> go.Figure:
    """Singular values of each table as stored and centred, beside a random table of the same shape and energy."""
    names = [str(name) for name in result["table"].values]
    titles = [_table_title(result, name) for name in names]
    figure = make_subplots(1, len(names), subplot_titles=titles, horizontal_spacing=0.1)
    for column, name in enumerate(names, start=1):
        here = result.sel(table=name)
        index = np.arange(1, result.sizes["direction"] + 1)
        lines = (
            ("as stored", here["singular_value"].sel(centring="stored"), COLOURS[name], "solid"),
            ("mean row removed", here["singular_value"].sel(centring="centred"), COLOURS[name], "dot"),
            ("random table", here["singular_value_chance"].sel(centring="stored"), CHANCE, "solid"),
        )
        for title, values, colour, dash in lines:
            line = go.Scatter(
                x=index,
                y=values.values,
                mode="lines",
                name=f"{TABLE_NAMES[name]}, {title}" if title != "random table" else "random, same shape and energy",
                line={"color": colour, "width": 2, "dash": dash},
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


def _table_title(result: xr.Dataset, name: str) -> str:
    here = result.sel(table=name, centring="stored")
    return f"{TABLE_NAMES[name].capitalize()}: 90 % of the energy in {float(here['rank_90']):g} directions"


def capture_figure(result: xr.Dataset) -> go.Figure:
    """Capture of every token direction by the top position directions, beside the range that chance gives."""
    choices = [str(choice) for choice in result["k_choice"].values]
    sizes = [int(result["capture_k"].sel(centring="stored", k_choice=choice)) for choice in choices]
    titles = [f"Top {size} position directions" for size in sizes]
    titles[-1] += " (90 % of the energy)"
    figure = make_subplots(1, len(choices), subplot_titles=titles, horizontal_spacing=0.08)
    index = np.arange(1, result.sizes["direction"] + 1)
    for column, (choice, size) in enumerate(zip(choices, sizes, strict=True), start=1):
        here = result.sel(k_choice=choice)
        _add_band(figure, column, index, size, result.attrs["d_model"])
        for centring, colour in (("stored", BLUE), ("centred", ORANGE)):
            dots = go.Scatter(
                x=index,
                y=here["capture"].sel(centring=centring).values,
                mode="markers",
                name="tables as stored" if centring == "stored" else "mean rows removed",
                legendgroup=centring,
                showlegend=column == 1,
                marker={"size": 4, "color": colour, "opacity": 0.75},
                hovertemplate="token direction %{x}: %{y:.3f}<extra></extra>",
            )
            figure.add_trace(dots, 1, column)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="share captured", col=1)
    figure.update_xaxes(title_text="token direction, largest singular value first")
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "How much of each token direction the top position directions capture", 460)


def _add_band(figure: go.Figure, column: int, index: np.ndarray, k: int, d: int) -> None:
    """Chance: the mean k/d and the middle 95 % of one direction."""
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
        name="chance, 95 % of single directions",
        legendgroup="band",
        showlegend=column == 1,
        hoverinfo="skip",
    )
    mean = go.Scatter(
        x=ends,
        y=[k / d, k / d],
        mode="lines",
        line={"color": CHANCE, "width": 2},
        name="chance",
        legendgroup="chance",
        showlegend=column == 1,
        hovertemplate="chance %{y:.3f}<extra></extra>",
    )
    figure.add_trace(band, 1, column)
    figure.add_trace(mean, 1, column)


def cosine_figure(result: xr.Dataset) -> go.Figure:
    """Cosines of pairs of rows, beside those of random directions."""
    names = [str(name) for name in result["table"].values]
    figure = make_subplots(1, len(names), subplot_titles=[f"Rows of {TABLE_NAMES[name]}" for name in names])
    for column, name in enumerate(names, start=1):
        for centring, dash in (("stored", "solid"), ("centred", "dot")):
            here = result.sel(table=name, centring=centring)
            _add_density(figure, column, here, COLOURS[name], dash, f"{TABLE_NAMES[name]}, {_form(centring)}")
        chance = result["cosine_density_chance"].sel(table=name, centring="stored")
        line = go.Scatter(
            x=result["cosine"].values,
            y=chance.values,
            mode="lines",
            line={"color": CHANCE, "width": 2.5},
            name="random directions",
            showlegend=column == 1,
            hovertemplate="%{x:.2f}: %{y:.2f}<extra>chance</extra>",
        )
        figure.add_trace(line, 1, column)
    figure.update_xaxes(title_text="cosine of two rows", range=[-1, 1])
    figure.update_yaxes(title_text="density", col=1)
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Angles between rows: is the table a sphere?", 440)


def _form(centring: str) -> str:
    return "as stored" if centring == "stored" else "mean row removed"


def _add_density(figure: go.Figure, column: int, here: xr.Dataset, colour: str, dash: str, name: str) -> None:
    line = go.Scatter(
        x=here["cosine"].values,
        y=here["cosine_density"].values,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        name=name,
        hovertemplate="%{x:.2f}: %{y:.2f}<extra></extra>",
    )
    figure.add_trace(line, 1, column)
