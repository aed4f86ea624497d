"""Spectrum and overlaps at one step, with a slider over the steps of a run.

The slider replaces the heights of three curves; their axes stay, so that what moves is the model and not the picture.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.theme import BLUE, CHANCE, GREEN, ORANGE, styled

MOST_STOPS = 60
PAIRS = (("write:K", ORANGE), ("write:V", GREEN))


def scrubber(track: xr.Dataset) -> go.Figure:
    """Singular values of the embedding, the bridge's energy in their directions, and angles of O to K and V."""
    stops = np.unique(np.linspace(0, track.sizes["step"] - 1, min(MOST_STOPS, track.sizes["step"])).round().astype(int))
    k, d = int(track["k"][1]), int(track.attrs["d_model"])
    titles = ("Singular values of the embedding", f"Bridge energy by direction (top {k})", "Angles of O in layer 0 to")
    figure = make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.08)
    curves = [_heights(track, int(stop), k) for stop in stops]
    last = curves[-1]
    rank = list(range(1, len(last[0]) + 1))
    figure.add_trace(go.Bar(x=rank, y=last[0], marker={"color": BLUE}, showlegend=False), 1, 1)
    figure.add_trace(go.Bar(x=rank, y=last[1], marker={"color": ORANGE}, showlegend=False), 1, 2)
    for place, (pair, colour) in enumerate(PAIRS, start=2):
        number = list(range(1, len(last[place]) + 1))
        name = f"{pair[-1]} of layer 1"
        line = go.Scatter(x=number, y=last[place], mode="lines+markers", name=name, line={"color": colour})
        figure.add_trace(line, 1, 3)
    figure.add_hline(y=1 / d, line={"color": CHANCE, "dash": "dash"}, row=1, col=2)
    highest = [float(np.nanmax(track[name].values)) for name in ("embedding_singular_value", "bridge_profile")]
    for column, (title, top) in enumerate(((("direction", highest[0])), ("direction", highest[1]), ("angle", 90)), 1):
        figure.update_xaxes(title_text=title, row=1, col=column)
        figure.update_yaxes(range=[0, 1.05 * top], row=1, col=column)
    steps = [int(track["step"][int(stop)]) for stop in stops]
    figure.update_layout(sliders=[_slider(steps, curves)], bargap=0)
    styled(figure, "Step by step: move the slider (dashed: chance)", 480)
    return figure.update_layout(margin={"b": 170}, legend={"x": 1, "xanchor": "right", "y": -0.2})


def _heights(track: xr.Dataset, stop: int, k: int) -> list[list[float | None]]:
    here = track.isel(step=stop)
    arrays = [here["embedding_singular_value"], here["bridge_profile"].sel(k=k)]
    arrays += [here["angle"].sel(pair=pair) for pair, _ in PAIRS]
    return [[None if value != value else round(float(value), 4) for value in array.values] for array in arrays]


def _slider(steps: list[int], curves: list[list[list[float | None]]]) -> dict[str, Any]:
    places = list(range(len(curves[0])))
    moves = [
        {"label": str(step), "method": "restyle", "args": [{"y": heights}, places]}
        for step, heights in zip(steps, curves, strict=True)
    ]
    return {
        "active": len(steps) - 1,
        "steps": moves,
        "currentvalue": {"prefix": "step "},
        "pad": {"t": 95},
        "len": 1.0,
        "x": 0,
        "bgcolor": CHANCE,
        "bordercolor": CHANCE,
        "tickcolor": CHANCE,
    }
