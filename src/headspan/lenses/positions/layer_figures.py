"""Layer by layer: how far each matrix lies along each table; and what the logits of layer 0 are made of."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import LAYER, HeadLabel
from headspan.lenses.positions.overlap_figures import SYMBOLS
from headspan.lenses.positions.table_figures import TABLE_NAMES
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREEN, GREY, ORANGE, SKY, styled

TERM_COLOURS = (BLUE, SKY, GREEN, ORANGE, GREY)


def alignment_figure(result: xr.Dataset) -> go.Figure:
    """Energy alignment of every matrix with each table over layers, in multiples of chance."""
    names = [str(name) for name in result["table"].values]
    figure = make_subplots(
        1, len(names), subplot_titles=[TABLE_NAMES[name].capitalize() for name in names], shared_yaxes=True
    )
    layers = result[LAYER].values
    for column, name in enumerate(names, start=1):
        for place, matrix in enumerate(result["matrix"].values):
            here = result.sel(table=name, matrix=matrix)
            line = go.Scatter(
                x=layers,
                y=(here["energy_alignment"] / here["energy_alignment_chance"]).values,
                customdata=np.stack([here["alignment"], here["alignment_chance"], here["energy_alignment_z"]], axis=-1),
                mode="lines+markers",
                name=SYMBOLS[str(matrix)],
                legendgroup=str(matrix),
                showlegend=column == 1,
                line={"color": CATEGORIES[place], "width": 2},
                hovertemplate="layer %{x}: %{y:.2f} times chance, z = %{customdata[2]:.0f}<br>"
                "in the top directions %{customdata[0]:.1%}, chance %{customdata[1]:.1%}<extra></extra>",
            )
            figure.add_trace(line, 1, column)
        chance = go.Scatter(
            x=[layers[0], layers[-1]],
            y=[1, 1],
            mode="lines",
            name="chance",
            legendgroup="chance",
            showlegend=column == 1,
            line={"color": CHANCE, "width": 2.5, "dash": "dot"},
            hoverinfo="skip",
        )
        figure.add_trace(chance, 1, column)
    ticks = [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_yaxes(title_text="multiple of chance", col=1)
    figure.update_xaxes(title_text="layer", dtick=max(1, len(layers) // 12))
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Energy that each matrix shares with the tables", 460)


def logit_figure(result: xr.Dataset) -> go.Figure:
    """Bars of shares for every head of layer 0, with chance as the last bar."""
    heads = [str(HeadLabel(0, int(head))) for head in result["head"].values]
    figure = go.Figure()
    for place, term in enumerate(result["term"].values):
        share = result["logit_share"].sel(term=term).values
        chance = float(result["logit_share_chance"].sel(term=term))
        bars = go.Bar(
            x=[*heads, "chance"],
            y=[*share, chance],
            name=_term_title(str(term)),
            marker_color=TERM_COLOURS[place],
            hovertemplate=f"%{{x}}, {term}: %{{y:.1%}}<extra></extra>",
        )
        figure.add_trace(bars)
    figure.update_layout(barmode="relative")
    figure.update_yaxes(tickformat=".0%", title_text="share of the logits' variance")
    return styled(figure, "What the logits of layer 0 are made of", 440)


def _term_title(term: str) -> str:
    if term == "constant":
        return "with a constant or bias"
    query, key = term.split("-")
    return f"query's {query} · key's {key}"
