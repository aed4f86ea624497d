"""Squared overlaps of singular directions as heat maps, in multiples of chance on one logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import LAYER, ROLES
from headspan.lenses.positions.table_figures import TABLE_NAMES
from headspan.theme import DIVERGING, styled

SYMBOLS: dict[str, str] = {role: f"W<sub>{role}</sub>" for role in ROLES}
SYMBOLS |= {"in": "MLP in", "gate": "MLP gate", "up": "MLP up", "out": "MLP out"}
REACH = 3.0
"""Colours reach from an eighth of chance to eight times."""


def table_overlaps(result: xr.Dataset, smooth: bool = False) -> go.Figure:
    """Token directions down, position directions across, as stored and without mean rows."""
    forms = {"stored": "Tables as stored", "centred": "Mean rows removed"}
    figure = make_subplots(1, 2, subplot_titles=list(forms.values()), horizontal_spacing=0.08)
    for column, centring in enumerate(forms, start=1):
        values = result["table_overlap"].sel(centring=centring).values * result.attrs["d_model"]
        figure.add_trace(_panel(values, result.attrs["d_model"], "tokens", "positions", smooth), 1, column)
    figure.update_yaxes(title_text="token direction", col=1)
    figure.update_xaxes(title_text="position direction")
    return _finished(figure, "Squared overlap of token and position directions, as a multiple of chance", 1)


def attention_overlaps(result: xr.Dataset, layer: int | None = None, smooth: bool = False) -> go.Figure:
    """Every attention role of one layer against each table: the first layer unless another is named."""
    return _layer_figure(result, list(ROLES), layer, smooth)


def mlp_overlaps(result: xr.Dataset, layer: int | None = None, smooth: bool = False) -> go.Figure:
    """The MLP's matrices of one layer against each table: another view of the same numbers."""
    return _layer_figure(result, [str(name) for name in result["matrix"].values if name not in ROLES], layer, smooth)


def _layer_figure(result: xr.Dataset, matrices: Sequence[str], layer: int | None, smooth: bool) -> go.Figure:
    layer = int(result[LAYER].values[0]) if layer is None else layer
    names = [str(name) for name in result["table"].values]
    titles = [f"{SYMBOLS[matrix]} and {TABLE_NAMES[name]}" for name in names for matrix in matrices]
    figure = make_subplots(
        len(names), len(matrices), subplot_titles=titles, horizontal_spacing=0.04, vertical_spacing=0.3 / len(names)
    )
    for row, name in enumerate(names, start=1):
        for column, matrix in enumerate(matrices, start=1):
            values = result["overlap"].sel({LAYER: layer, "matrix": matrix, "table": name}).values
            scaled = values * result.attrs["d_model"]
            figure.add_trace(
                _panel(scaled, result.attrs["d_model"], SYMBOLS[matrix], TABLE_NAMES[name], smooth), row, column
            )
        figure.update_xaxes(title_text=f"{TABLE_NAMES[name][:-1]} direction", row=row)
    figure.update_yaxes(title_text="matrix direction", col=1)
    return _finished(figure, f"Layer {layer}: overlap with the tables' directions, as a multiple of chance", len(names))


def _panel(ratio: np.ndarray, d: int, rows: str, columns: str, smooth: bool) -> go.Heatmap:
    """One heat map. Smoothing, if wanted, is the browser's: the numbers under the mouse stay what they are."""
    logs = np.log2(np.maximum(ratio, 2.0**-8))
    places = [(np.arange(size) + 0.5) / size for size in ratio.shape]
    return go.Heatmap(
        z=logs.astype(np.float32),
        x=places[1],
        y=places[0],
        customdata=ratio.astype(np.float32),
        zsmooth="best" if smooth else False,
        coloraxis="coloraxis",
        hovertemplate=f"{rows} at %{{y:.0%}}, {columns} at %{{x:.0%}}<br>%{{customdata:.2f}} / {d}<extra></extra>",
    )


def _finished(figure: go.Figure, title: str, rows: int) -> go.Figure:
    ticks = [-3, -2, -1, 0, 1, 2, 3]
    names = ["⅛", "¼", "½", "1 chance", "2", "4", "8"]
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
