"""A training run, drawn: curves on one time axis, spectra, overlaps, ablations, sharpness. The transition is marked.

The loss around and between models, the slider over steps and the studies are drawn in files of their own.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.lab.landscape_figure import barrier, sharpest, swaps
from headspan.lab.scrubber_figure import scrubber
from headspan.lab.study_figures import study_figures
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREEN, ORANGE, SEQUENTIAL, VERMILION, around_chance, styled


def figures(result: xr.DataTree) -> dict[str, go.Figure]:
    """All figures that this run has the numbers for."""
    track = result.to_dataset()
    drawn = {"Learning curves": learning_curves(result), "Singular values of the embedding": spectra(track)}
    if track.sizes["layer"] > 1:
        drawn["Subspace overlaps"] = overlaps(result)
        drawn["Spectrum and overlaps, step by step"] = scrubber(track)
    if "ablation" in result.children:
        drawn["Ablations beside random controls"] = ablations(result.children["ablation"].to_dataset(inherit=False))
    if "hessian_top" in track and track["hessian_top"].notnull().any():
        drawn["Sharpness and where it lives"] = sharpness(result)
    return {**drawn, **_landscape(result), **study_figures(result)}


def _landscape(result: xr.DataTree) -> dict[str, go.Figure]:
    """The loss along lines through and between models, and swapped parts."""
    nodes = {name: result.children[name].to_dataset(inherit=False) for name in ("sensitivity", "path", "swap")
             if name in result.children}  # fmt: skip
    drawn = {}
    if "sensitivity" in nodes:
        drawn["Loss along the sharpest direction"] = sharpest(nodes["sensitivity"])
    if "path" in nodes:
        drawn["Loss barrier between before and after"] = barrier(nodes["path"])
    if "swap" in nodes:
        drawn["Component swaps"] = swaps(nodes["swap"])
    return drawn


def _line(track: xr.Dataset, name: str, values: np.ndarray, colour: str, **more: object) -> go.Scatter:
    known = np.isfinite(values)
    trace = go.Scatter(x=track["step"].values[known], y=values[known], mode="lines", name=name, line={"color": colour})
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
    for part, colour in (("train", GREEN), ("id", BLUE), ("ood", ORANGE)):
        figure.add_trace(_line(track, f"{part} accuracy", track[f"{part}_accuracy"].values, colour), 1, 1)
        figure.add_trace(_line(track, f"{part} loss", track[f"{part}_loss"].values, colour, showlegend=False), 2, 1)
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
    figure.add_trace(_line(track, "the same of random matrices", track["gap_chance"].values, CHANCE), 2, 1)
    figure.update_yaxes(title_text="singular value", row=1, col=1)
    figure.update_yaxes(title_text="gap", row=2, col=1)
    figure.update_xaxes(title_text="step", row=2, col=1)
    return styled(figure, "Singular values of the embedding over training", 560)


def overlaps(result: xr.DataTree) -> go.Figure:
    """Bridge against the embedding's parts, and layer 0's writing against layer 1's reading, with chance."""
    track = result.to_dataset()
    k, d = int(track["k"][1]), int(track.attrs["d_model"])
    titles = (f"PK(O of layer 0, reader of layer 1) / {k}", "Energy of the bridge in the embedding's parts")
    figure = make_subplots(2, 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.1)
    for role, colour in (("Q", BLUE), ("K", ORANGE), ("V", GREEN)):
        kernel = track["projection_kernel"].sel(k=k, reader=role).values
        figure.add_trace(_line(track, f"reader {role}", kernel, colour), 1, 1)
    figure.add_hline(y=k / d, line={"color": CHANCE, "dash": "dash"}, row=1, col=1)
    for part, colour in zip(track["part"].values, (VERMILION, BLUE, ORANGE), strict=True):
        energy = track["bridge_energy"].sel(k=k, part=part).values
        chance = track["bridge_energy_chance"].sel(part=part).values
        figure.add_trace(_line(track, f"{part}", energy, colour), 2, 1)
        dashes = {"color": colour, "dash": "dash", "width": 1}
        figure.add_trace(_line(track, f"{part} by chance", chance, colour).update(line=dashes, showlegend=False), 2, 1)
    _mark_transition(figure, result)
    figure.update_xaxes(title_text="step", row=2, col=1)
    return styled(figure, "Subspaces over training (dashed: chance; the parts exist only where there is a gap)", 560)


def ablations(node: xr.Dataset) -> go.Figure:
    """OOD accuracy after each removal, and after removing random subspaces of the same dimension."""
    figure = make_subplots(1, 2, subplot_titles=("Named subspace", "Random, same dimension"), shared_yaxes=True)
    rows = [f"{s} ({int(n)})" for s, n in zip(node["space"].values, node["dimension"].values, strict=True)]
    for column, values in ((1, node["accuracy"].values), (2, node["accuracy_control"].mean("control").values)):
        panel = go.Heatmap(z=values, x=node["site"].values, y=rows, coloraxis="coloraxis", xgap=1, ygap=1)
        panel.update(text=np.round(values, 2), texttemplate="%{text}")
        panel.update(hovertemplate="%{y} out of %{x}: %{z:.3f}<extra></extra>")
        figure.add_trace(panel, 1, column)
    figure.update_layout(coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": 1})
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(showgrid=False, tickangle=-40)
    return styled(figure, f"OOD accuracy after a removal ({float(node['accuracy_whole']):.2f} without)", 340)


def sharpness(result: xr.DataTree) -> go.Figure:
    """Extreme Hessian eigenvalues with their errors, and the share of the top direction in each group of parameters."""
    track = result.to_dataset().dropna("step", subset=["hessian_top"])
    titles = ("Largest and smallest eigenvalue", "Where the largest one's direction lives")
    figure = make_subplots(2, 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.12)
    for end, colour in (("top", VERMILION), ("bottom", BLUE)):
        line = _line(track, f"{end} eigenvalue", track[f"hessian_{end}"].values, colour)
        error = {"type": "data", "array": track[f"hessian_{end}_error"].values}
        figure.add_trace(line.update(mode="lines+markers", error_y=error), 1, 1)
    shares = track["sharpness_share"]
    chance = float(track["sharpness_share_chance"].mean())
    panel = go.Heatmap(z=shares.values.T, x=track["step"].values, y=list(shares["group"].values), coloraxis="coloraxis")
    panel.update(hovertemplate="%{y} at step %{x}: %{z:.2f}<extra></extra>")
    figure.add_trace(panel, 2, 1)
    figure.update_layout(coloraxis=around_chance(0.0, chance, float(shares.max())))
    figure.update_layout(coloraxis_colorbar={"len": 0.45, "y": 0.22})
    _mark_transition(figure, result)
    figure.update_xaxes(title_text="step", row=2, col=1)
    figure.update_xaxes(range=[0, int(track["step"][-1])])  # cells of the panel below reach beyond both ends
    return styled(figure, "Sharpness over training", 620)
