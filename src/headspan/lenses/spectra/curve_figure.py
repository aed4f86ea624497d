"""Squared singular values of every layer as curves, beside random matrices at the scale of initialization."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import torch
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from headspan.dims import LAYER
from headspan.lenses.spectra.kinds import MLP, WHOLE
from headspan.result import Result
from headspan.statistics import mp_quantile
from headspan.theme import CHANCE, ORDERED, styled

POINTS = 160
"""Of a curve; the first and the last value are always among them."""
COLUMNS = 3


def layer_curves(result: Result) -> go.Figure:
    """A panel for every kind of matrix, a curve for every layer, and the law of a random matrix."""
    kinds = [name for name in (*WHOLE, *MLP) if name in result]
    columns = min(COLUMNS, len(kinds))
    rows = -(-len(kinds) // columns)
    titles = [_title(result, kind) for kind in kinds]
    figure = make_subplots(rows, columns, subplot_titles=titles, vertical_spacing=0.3 / rows, horizontal_spacing=0.08)
    for number, kind in enumerate(kinds):
        where = (number // columns + 1, number % columns + 1)
        for trace in _curves(result, kind, number == 0):
            figure.add_trace(trace, *where)
    figure.update_xaxes(title_text="share of singular values", row=rows)
    figure.update_yaxes(title_text="squared", type="log", exponentformat="power", col=1)
    figure.update_yaxes(type="log", exponentformat="power")
    layers = result[kinds[0]][LAYER].values
    scale = {"colorscale": ORDERED, "cmin": int(layers[0]), "cmax": int(max(layers[-1], layers[0] + 1))}
    figure.update_layout(
        coloraxis={**scale, "colorbar": {"title": {"text": "layer"}, "len": 0.9, "dtick": max(1, len(layers) // 8)}},
        legend={"y": -0.3 / rows},
    )
    return styled(figure, "Squared singular values of all layers, largest first", 130 + 260 * rows)


def _title(result: Result, kind: str) -> str:
    node = result.dataset(kind)
    return f"W<sub>{kind.removeprefix('W_')}</sub>, {int(node['rows'])} x {int(node['columns'])}"


def _curves(result: Result, kind: str, first: bool) -> list[go.Scatter]:
    node = result.dataset(kind)
    layers, values = node[LAYER].values, node["singular_value"].values ** 2
    n = values.shape[-1]
    places = np.unique(np.linspace(0, n - 1, min(n, POINTS)).round().astype(int))
    share, depth = places / max(n - 1, 1), max(int(layers[-1] - layers[0]), 1)
    traces = []
    for layer, row in zip(layers, values, strict=True):
        color = sample_colorscale(ORDERED, [float(layer - layers[0]) / depth])[0]
        # Rounding leaves zeros, which a logarithmic axis cannot show.
        curve = go.Scatter(x=share, y=np.where(row[places] > 0, row[places], np.nan), mode="lines", showlegend=False)
        curve.update(line={"color": color, "width": 1.3}, hovertemplate=f"layer {layer}: %{{y:.3g}}<extra></extra>")
        traces.append(curve)
    # An invisible point carries the color bar.
    bar = go.Scatter(x=[None], y=[None], mode="markers", marker={"color": [0], "coloraxis": "coloraxis"})
    law = mp_quantile(torch.as_tensor(1 - (places + 0.5) / n), int(node["rows"]), int(node["columns"])).numpy()
    null = go.Scatter(x=share, y=(law * float(node["sigma_init"])) ** 2, mode="lines", name="random, at initialization")
    null.update(line={"color": CHANCE, "width": 2.5, "dash": "dash"}, showlegend=first, hoverinfo="skip")
    return [*traces, bar.update(showlegend=False, hoverinfo="skip"), null]
