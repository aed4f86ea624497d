"""Overlaps and alignments, drawn: tables and layers against one another, and what the logits of layer 0 are made of.

Squared overlaps of singular directions are heat maps, in multiples of what is expected on one logarithmic scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import LAYER, ROLES, HeadLabel
from headspan.lenses.positions.schema import TABLE_NAMES, table_width
from headspan.theme import BLUE, CATEGORIES, CHANCE, DIVERGING, GREEN, GREY, ORANGE, SKY, styled

TERM_COLORS = (BLUE, SKY, GREEN, ORANGE, GREY)
SYMBOLS: dict[str, str] = {role: f"W<sub>{role}</sub>" for role in ROLES}
SYMBOLS |= {"in": "MLP in", "gate": "MLP gate", "up": "MLP up", "out": "MLP out"}
REACH = 3.0
"""Colors reach from an eighth of the expected overlap to eight times."""


def table_overlaps(grid: xr.Dataset) -> go.Figure:
    """Token directions down, position directions across, as stored and without mean rows."""
    forms = {"stored": "Tables as stored", "centered": "Mean rows removed"}
    figure = make_subplots(1, 2, subplot_titles=list(forms.values()), horizontal_spacing=0.08)
    for column, centering in enumerate(forms, start=1):
        width = table_width(grid)
        values = grid["table_overlap"].sel(centering=centering).values * width
        figure.add_trace(_panel(values, width, "tokens", "positions", _blur(grid, width, values)), 1, column)
    figure.update_yaxes(title_text="token direction", col=1)
    figure.update_xaxes(title_text="position direction")
    return _finished(figure, "Squared overlap of token and position directions, as a multiple of the expected", 1)


def attention_overlaps(grid: xr.Dataset, layer: int | None = None) -> go.Figure:
    """Every attention role of one layer against each table: the layer that was asked for unless another is named."""
    return _layer_figure(grid, list(ROLES), layer)


def mlp_overlaps(grid: xr.Dataset, layer: int | None = None) -> go.Figure:
    """The MLP's matrices of one layer against each table: another view of the same numbers."""
    return _layer_figure(grid, [str(name) for name in grid["matrix"].values if name not in ROLES], layer)


def _layer_figure(grid: xr.Dataset, matrices: Sequence[str], layer: int | None) -> go.Figure:
    layer = int(grid.attrs.get("shown_layer", grid[LAYER].values[0])) if layer is None else layer
    names = [str(name) for name in grid["table"].values]
    titles = [f"{SYMBOLS[matrix]} and {TABLE_NAMES[name]}" for name in names for matrix in matrices]
    figure = make_subplots(
        len(names), len(matrices), subplot_titles=titles, horizontal_spacing=0.04, vertical_spacing=0.3 / len(names)
    )
    for row, name in enumerate(names, start=1):
        for column, matrix in enumerate(matrices, start=1):
            values = grid["overlap"].sel({LAYER: layer, "matrix": matrix, "table": name}).values
            scaled = values * int(grid.attrs["d_model"])
            d = int(grid.attrs["d_model"])
            panel = _panel(scaled, d, SYMBOLS[matrix], TABLE_NAMES[name], _blur(grid, d, scaled))
            figure.add_trace(panel, row, column)
        figure.update_xaxes(title_text=f"{TABLE_NAMES[name][:-1]} direction", row=row)
    figure.update_yaxes(title_text="matrix direction", col=1)
    return _finished(
        figure, f"Layer {layer}: overlap with the tables' directions, as a multiple of the expected", len(names)
    )


def _blur(grid: xr.Dataset, d: int, values: np.ndarray) -> tuple[float, ...]:
    """Standard deviations of the blur in blocks, down and across; asked for in directions, d of which make a side."""
    return tuple(float(grid.attrs.get("smooth", 0.0)) * size / d for size in values.shape)


def _panel(ratio: np.ndarray, d: int, rows: str, columns: str, blur: tuple[float, ...]) -> go.Heatmap:
    """One heat map. A blur, if wanted, is of the colors: the numbers under the mouse stay what they are."""
    from scipy.ndimage import gaussian_filter

    shown = gaussian_filter(ratio, blur, mode="nearest") if any(blur) else ratio
    logs = np.log2(np.maximum(shown, 2.0**-8))
    places = [(np.arange(size) + 0.5) / size for size in ratio.shape]
    return go.Heatmap(
        z=logs.astype(np.float32),
        x=places[1],
        y=places[0],
        customdata=ratio.astype(np.float32),
        coloraxis="coloraxis",
        hovertemplate=f"{rows} at %{{y:.0%}}, {columns} at %{{x:.0%}}<br>%{{customdata:.2f}} / {d}<extra></extra>",
    )


def _finished(figure: go.Figure, title: str, rows: int) -> go.Figure:
    ticks = [-3, -2, -1, 0, 1, 2, 3]
    names = ["⅛", "¼", "½", "1 expected", "2", "4", "8"]
    figure.update_layout(
        coloraxis={
            "colorscale": DIVERGING,
            "cmin": -REACH,
            "cmax": REACH,
            "colorbar": {"tickvals": ticks, "ticktext": names, "len": 0.9},
        }
    )
    ends = {"tickvals": [0.02, 0.98], "ticktext": ["first", "last"], "showgrid": False, "zeroline": False, "ticks": ""}
    figure.update_xaxes(**ends, tickangle=0)
    figure.update_yaxes(**(ends | {"tickvals": [0.08, 0.92]}), autorange="reversed")
    figure.update_yaxes(showticklabels=False, title_text="")
    figure.update_yaxes(showticklabels=True, tickangle=-90, col=1)
    return styled(figure, title, 150 + 250 * rows if rows > 1 else 400)


def alignment_figure(grid: xr.Dataset) -> go.Figure:
    """Energy alignment of every matrix with each table over layers, in multiples of what is expected under the null."""
    names = [str(name) for name in grid["table"].values]
    figure = make_subplots(
        1, len(names), subplot_titles=[TABLE_NAMES[name].capitalize() for name in names], shared_yaxes=True
    )
    layers = grid[LAYER].values
    for column, name in enumerate(names, start=1):
        for place, matrix in enumerate(grid["matrix"].values):
            here = grid.sel(table=name, matrix=matrix)
            line = go.Scatter(
                x=layers,
                y=(here["energy_alignment"] / here["energy_alignment_null"]).values,
                customdata=np.stack([here["alignment"], here["alignment_null"], here["energy_alignment_z"]], axis=-1),
                mode="lines+markers",
                name=SYMBOLS[str(matrix)],
                legendgroup=str(matrix),
                showlegend=column == 1,
                line={"color": CATEGORIES[place], "width": 2},
                hovertemplate="layer %{x}: %{y:.2f} times expected, z = %{customdata[2]:.0f}<br>"
                "in the top directions %{customdata[0]:.1%}, expected %{customdata[1]:.1%}<extra></extra>",
            )
            figure.add_trace(line, 1, column)
        expected = go.Scatter(
            x=[layers[0], layers[-1]],
            y=[1, 1],
            mode="lines",
            name="expected under the null",
            legendgroup="null",
            showlegend=column == 1,
            line={"color": CHANCE, "width": 2.5, "dash": "dot"},
            hoverinfo="skip",
        )
        figure.add_trace(expected, 1, column)
    ticks = [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_yaxes(title_text="times expected", col=1)
    figure.update_xaxes(title_text="layer", dtick=max(1, len(layers) // 12))
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Energy that each matrix shares with the tables", 460)


def logit_figure(grid: xr.Dataset) -> go.Figure:
    """Bars of shares for every head of layer 0, with the null as the last bar."""
    heads = [str(HeadLabel(0, int(head))) for head in grid["head"].values]
    figure = go.Figure()
    for place, term in enumerate(grid["term"].values):
        share = grid["logit_share"].sel({LAYER: 0, "term": term}).values
        expected = float(grid["logit_share_null"].sel(term=term))
        bars = go.Bar(
            x=[*heads, "null"],
            y=[*share, expected],
            name=_term_title(str(term)),
            marker_color=TERM_COLORS[place],
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
