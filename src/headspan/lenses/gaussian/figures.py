"""The Gaussian lens drawn: predicted against measured, layer by layer, and information over distance."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from headspan.dims import HEAD, LAYER, HeadLabel
from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREEN, ORANGE, ORDERED, SEQUENTIAL, VERMILION, styled

PAIR_TITLES = {"self": "Tokens with themselves", "neighbor": "Neighbors", "unrelated": "Unrelated tokens"}

TICKS = [digit * 10.0**power for power in range(-3, 4) for digit in (1, 2, 5)]


BEHIND = {
    "Spread of logits": ("logit_sd", "logit_sd_measured"),
    "Entropy of attention": ("entropy", "entropy_measured", "entropy_uniform"),
    "Information between tokens": ("information",),
}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""


def figures(of: Result) -> dict[str, go.Figure]:
    """Spread of logits, entropy, agreement by layer, and information over distance."""
    result = of.grid()
    drawn = {"Spread of logits": spread_figure(result), "Entropy of attention": entropy_figure(result)}
    if result.sizes[LAYER] > 1:
        drawn["Where the picture holds"] = agreement_figure(result)
    return drawn | {"Information between tokens": information_figure(result)}


def _labels(result: xr.Dataset) -> list[str]:
    return [str(HeadLabel(int(layer), head)) for layer in result[LAYER].values for head in range(result.sizes[HEAD])]


def _points(predicted: xr.DataArray, measured: xr.DataArray, labels: list[str]) -> go.Scatter:
    layers = np.repeat(predicted[LAYER].values, predicted.sizes[HEAD])
    return go.Scatter(
        x=predicted.values.ravel(),
        y=measured.values.ravel(),
        mode="markers",
        text=labels,
        marker={"color": layers, "coloraxis": "coloraxis", "size": 8, "line": {"width": 0.5, "color": "white"}},
        hovertemplate="%{text}: predicted %{x:.3g}, measured %{y:.3g}<extra></extra>",
        showlegend=False,
    )


def _diagonal(lowest: float, highest: float, shown: bool) -> go.Scatter:
    return go.Scatter(
        x=[lowest, highest],
        y=[lowest, highest],
        mode="lines",
        line={"color": CHANCE, "width": 2, "dash": "dot"},
        name="measured as predicted",
        showlegend=shown,
        hoverinfo="skip",
    )


def spread_figure(result: xr.Dataset) -> go.Figure:
    """Standard deviation of logits, one panel per kind of pair, a point per head."""
    pairs = [str(pair) for pair in result["pair"].values]
    titles = [f"{PAIR_TITLES[pair]}, R² {float(result['logit_sd_r2_all'].sel(pair=pair)):.2f}" for pair in pairs]
    figure = make_subplots(1, len(pairs), subplot_titles=titles)
    labels = _labels(result)
    for column, pair in enumerate(pairs, start=1):
        here = result.sel(pair=pair)
        predicted, measured = here["logit_sd"], here["logit_sd_measured"]
        positive = np.concatenate([predicted.values.ravel(), measured.values.ravel()])
        positive = positive[np.isfinite(positive) & (positive > 0)]
        if len(positive):
            figure.add_trace(_diagonal(positive.min(), positive.max(), column == 1), 1, column)
        figure.add_trace(_points(predicted, measured, labels), 1, column)
    figure.update_xaxes(title_text="predicted", type="log", tickvals=TICKS)
    figure.update_yaxes(type="log", tickvals=TICKS)
    figure.update_yaxes(title_text="measured", col=1)
    figure.update_layout(coloraxis=_layer_colors(result), legend_y=-0.25)
    return styled(figure, "Standard deviation of a head's logits", 420)


def entropy_figure(result: xr.Dataset) -> go.Figure:
    """Mean entropy of attention rows, a point per head."""
    figure = go.Figure()
    top = float(result["entropy_uniform"].max())
    figure.add_trace(_diagonal(0.0, top, True))
    figure.add_trace(_points(result["entropy"], result["entropy_measured"], _labels(result)))
    edge = go.Scatter(
        x=[0, top],
        y=[top, top],
        mode="lines",
        line={"color": CHANCE, "width": 1.5},
        name="uniform attention",
        hoverinfo="skip",
    )
    figure.add_trace(edge)
    figure.update_xaxes(title_text="predicted, nats")
    figure.update_yaxes(title_text="measured, nats")
    figure.update_layout(coloraxis=_layer_colors(result))
    return styled(figure, f"Entropy of attention, R² {float(result['entropy_r2_all']):.2f}", 460)


def _layer_colors(result: xr.Dataset) -> dict[str, object]:
    layers = result[LAYER].values
    step = max(1, len(layers) // 8)
    return {
        "colorscale": SEQUENTIAL,
        "colorbar": {"title": {"text": "layer"}, "tickvals": layers[::step].tolist(), "len": 0.9},
        "cmin": int(layers[0]),
        "cmax": int(max(layers[-1], layers[0] + 1)),
    }


def agreement_figure(result: xr.Dataset) -> go.Figure:
    """R² over the heads of each layer; values below -1 are drawn at -1 and named by the pointer."""
    figure = go.Figure()
    colors = dict(zip(result["pair"].values, (ORANGE, GREEN, BLUE), strict=True))
    rows = {f"spread: {PAIR_TITLES[str(pair)].lower()}": result["logit_sd_r2"].sel(pair=pair) for pair in colors}
    rows["entropy"] = result["entropy_r2"]
    for (name, values), color in zip(rows.items(), (*colors.values(), VERMILION), strict=True):
        line = go.Scatter(
            x=result[LAYER].values,
            y=np.maximum(values.values, -1.0),
            customdata=values.values,
            mode="lines+markers",
            name=name,
            line={"color": color, "width": 2},
            hovertemplate=f"{name}, layer %{{x}}: R² %{{customdata:.2f}}<extra></extra>",
        )
        figure.add_trace(line)
    figure.add_hline(y=0, line={"color": CHANCE, "width": 2, "dash": "dot"})
    figure.update_yaxes(title_text="R² over heads (0: one guess for all)", range=[-1.08, 1.08])
    figure.update_xaxes(title_text="layer", dtick=max(1, result.sizes[LAYER] // 12))
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Where the Gaussian picture holds", 440)


def information_figure(result: xr.Dataset) -> go.Figure:
    """Mutual information of tokens over their distance, less what their places alone give, a line per layer."""
    figure = go.Figure()
    layers = result[LAYER].values
    many = len(layers) >= len(CATEGORIES)
    colors = sample_colorscale(ORDERED, np.linspace(0, 1, len(layers))) if many else CATEGORIES
    for layer, color in zip(layers, colors, strict=False):
        here = result.sel({LAYER: layer})
        told, places = here["information"].values, here["information_null"].values
        line = go.Scatter(
            x=result["distance"].values,
            y=told - places,
            customdata=np.stack([told, places], axis=-1),
            mode="lines+markers",
            name=f"layer {int(layer)}",
            line={"color": color, "width": 2},
            hovertemplate=f"layer {int(layer)}, distance %{{x}}: %{{y:.3f}} nats<br>"
            "%{customdata[0]:.3f} in all, %{customdata[1]:.3f} by places alone<extra></extra>",
        )
        figure.add_trace(line)
    figure.add_hline(y=0, line={"color": CHANCE, "width": 2, "dash": "dot"})
    figure.update_xaxes(title_text="distance of two tokens", type="log", tickvals=result["distance"].values.tolist())
    figure.update_yaxes(title_text="nats beyond what places say")
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "What tokens say about each other, if Gaussian", 440)
