"""A training run, drawn: curves on one time axis, spectra, overlaps, sharpness, and a slider over the steps.

The transition is marked. The slider replaces the heights of three curves; their axes stay, so that what moves is the
model and not the picture. Experiments on the run are drawn in `experiment_figures`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.lab.experiment_figures import experiment_figures
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREEN, ORANGE, VERMILION, around_chance, styled

MOST_STOPS = 60
PAIRS = (("write:K", ORANGE), ("write:V", GREEN))


def figures(result: xr.DataTree) -> dict[str, go.Figure]:
    """All figures that this run has the numbers for."""
    track = result.to_dataset()
    drawn = {"Learning curves": learning_curves(result), "Singular values of the embedding": spectra(track)}
    if track.sizes["layer"] > 1:
        drawn["Subspace overlaps"] = overlaps(result)
        drawn["Spectrum and overlaps, step by step"] = scrubber(track)
    if "hessian_top" in track and track["hessian_top"].notnull().any():
        drawn["Sharpness and where it lives"] = sharpness(result)
    return drawn | experiment_figures(result)


def _line(track: xr.Dataset, name: str, values: np.ndarray, color: str, **more: object) -> go.Scatter:
    known = np.isfinite(values)
    trace = go.Scatter(x=track["step"].values[known], y=values[known], mode="lines", name=name, line={"color": color})
    trace.update(hovertemplate=f"{name}: %{{y:.3f}} at step %{{x}}<extra></extra>", **more)
    return trace


def _mark_transition(figure: go.Figure, result: xr.DataTree) -> None:
    """A line at the transition and a band for its interval, in every panel."""
    if "transition" not in result.children:
        return
    node = result.children["transition"].to_dataset(inherit=False)
    at, low, high = (float(node[f"transition_{name}"]) for name in ("step", "low", "high"))
    if not np.isfinite(at):
        return
    figure.add_vline(x=at, line={"color": CHANCE, "width": 1.5, "dash": "dot"}, row="all", col="all")
    if np.isfinite(low):
        figure.add_vrect(x0=low, x1=high, fillcolor=CHANCE, opacity=0.18, line_width=0, row="all", col="all")


def learning_curves(result: xr.DataTree) -> go.Figure:
    """Accuracy, loss beside that of the best context-free predictor, and attention scores, on one time axis."""
    track = result.to_dataset()
    titles = ("Accuracy", "Loss, nats", "Attention scores (best head)")
    figure = make_subplots(3, 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.08)
    for part, color in (("train", GREEN), ("id", BLUE), ("ood", ORANGE)):
        figure.add_trace(_line(track, f"{part} accuracy", track[f"{part}_accuracy"].values, color), 1, 1)
        figure.add_trace(_line(track, f"{part} loss", track[f"{part}_loss"].values, color, showlegend=False), 2, 1)
    if "marginal" in result.children:
        marginal = result.children["marginal"].to_dataset(inherit=False)
        for part in ("id", "ood"):
            figure.add_hline(y=float(marginal[f"{part}_loss"]), line={"color": CHANCE, "dash": "dash"}, row=2, col=1)
    previous = track["previous_token"].isel(layer=0).max("head").values
    induction = track["induction"].isel(layer=-1).max("head").values
    figure.add_trace(_line(track, "previous token, layer 0", previous, VERMILION), 3, 1)
    figure.add_trace(_line(track, "induction, last layer", induction, CATEGORIES[5]), 3, 1)
    _mark_transition(figure, result)
    figure.update_xaxes(title_text="step", row=3, col=1)
    return styled(figure, "What the model can do, and when (dashed: the best predictor without context)", 640)


def spectra(track: xr.Dataset) -> go.Figure:
    """Every singular value of the token table over time, and the size of the gap behind the medium ones."""
    values, steps = track["embedding_singular_value"].values, track["step"].values
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.08)
    shades = [f"rgba(0, 114, 178, {0.95 - 0.75 * rank / values.shape[1]:.2f})" for rank in range(values.shape[1])]
    for rank, shade in enumerate(shades):
        trace = go.Scatter(x=steps, y=values[:, rank], mode="lines", line={"color": shade, "width": 1.2})
        hover = f"value {rank + 1}: %{{y:.2f}} at step %{{x}}<extra></extra>"
        figure.add_trace(trace.update(showlegend=False, hovertemplate=hover), 1, 1)
    figure.add_trace(_line(track, "largest gap, relative to random spectra", track["gap"].values, ORANGE), 2, 1)
    figure.add_trace(_line(track, "the same of random matrices", track["gap_null"].values, CHANCE), 2, 1)
    figure.update_yaxes(title_text="singular value", row=1, col=1)
    figure.update_yaxes(title_text="gap", row=2, col=1)
    figure.update_xaxes(title_text="step", row=2, col=1)
    return styled(figure, "Singular values of the embedding over training", 560)


def overlaps(result: xr.DataTree) -> go.Figure:
    """Bridge against the embedding's parts, and layer 0's writing against layer 1's reading, with their null values."""
    track = result.to_dataset()
    k, d = int(track["k"][1]), int(track.attrs["d_model"])
    titles = (f"PK(O of layer 0, reader of layer 1) / {k}", "Energy of the bridge in the embedding's parts")
    figure = make_subplots(2, 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.1)
    for role, color in (("Q", BLUE), ("K", ORANGE), ("V", GREEN)):
        kernel = track["projection_kernel"].sel(k=k, reader=role).values
        figure.add_trace(_line(track, f"reader {role}", kernel, color), 1, 1)
    figure.add_hline(y=k / d, line={"color": CHANCE, "dash": "dash"}, row=1, col=1)
    for part, color in zip(track["part"].values, (VERMILION, BLUE, ORANGE), strict=True):
        energy = track["bridge_energy"].sel(k=k, part=part).values
        null = track["bridge_energy_null"].sel(part=part).values
        figure.add_trace(_line(track, f"{part}", energy, color), 2, 1)
        dashes = {"color": color, "dash": "dash", "width": 1}
        figure.add_trace(
            _line(track, f"{part} under the null", null, color).update(line=dashes, showlegend=False), 2, 1
        )
    _mark_transition(figure, result)
    figure.update_xaxes(title_text="step", row=2, col=1)
    return styled(
        figure,
        "Subspaces over training (dashed: null values; parts only where there is a gap)",
        560,
    )


def sharpness(result: xr.DataTree) -> go.Figure:
    """Extreme Hessian eigenvalues with their errors, and the share of the top direction in each group of parameters."""
    track = result.to_dataset().dropna("step", subset=["hessian_top"])
    titles = ("Largest and smallest eigenvalue", "Where the largest one's direction lives")
    figure = make_subplots(2, 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.12)
    for end, color in (("top", VERMILION), ("bottom", BLUE)):
        line = _line(track, f"{end} eigenvalue", track[f"hessian_{end}"].values, color)
        error = {"type": "data", "array": track[f"hessian_{end}_error"].values}
        figure.add_trace(line.update(mode="lines+markers", error_y=error), 1, 1)
    shares = track["sharpness_share"]
    panel = go.Heatmap(z=shares.values.T, x=track["step"].values, y=list(shares["group"].values), coloraxis="coloraxis")
    panel.update(hovertemplate="%{y} at step %{x}: %{z:.2f}<extra></extra>")
    figure.add_trace(panel, 2, 1)
    figure.update_layout(coloraxis=around_chance(0.0, float(track["sharpness_share_null"].mean()), float(shares.max())))
    figure.update_layout(coloraxis_colorbar={"len": 0.45, "y": 0.22})
    _mark_transition(figure, result)
    figure.update_xaxes(title_text="step", row=2, col=1)
    figure.update_xaxes(range=[0, int(track["step"][-1])])  # cells of the panel below reach beyond both ends
    return styled(figure, "Sharpness over training", 620)


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
    for place, (pair, color) in enumerate(PAIRS, start=2):
        number = list(range(1, len(last[place]) + 1))
        name = f"{pair[-1]} of layer 1"
        line = go.Scatter(x=number, y=last[place], mode="lines+markers", name=name, line={"color": color})
        figure.add_trace(line, 1, 3)
    figure.add_hline(y=1 / d, line={"color": CHANCE, "dash": "dash"}, row=1, col=2)
    highest = [float(np.nanmax(track[name].values)) for name in ("embedding_singular_value", "bridge_profile")]
    for column, (title, top) in enumerate(((("direction", highest[0])), ("direction", highest[1]), ("angle", 90)), 1):
        figure.update_xaxes(title_text=title, row=1, col=column)
        figure.update_yaxes(range=[0, 1.05 * top], row=1, col=column)
    steps = [int(track["step"][int(stop)]) for stop in stops]
    figure.update_layout(sliders=[_slider(steps, curves)], bargap=0)
    styled(figure, "Step by step: move the slider (dashed: expected under the null)", 480)
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
