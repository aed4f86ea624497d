"""Experiments on a run, drawn: removals beside random controls, the loss around and between models, what parts of one
model do in the other, and the studies that train further models."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.theme import BLUE, CATEGORIES, CHANCE, ORANGE, SEQUENTIAL, VERMILION, styled


def experiment_figures(result: xr.DataTree) -> dict[str, go.Figure]:
    """One figure per experiment or study that the run has."""
    return {
        title: draw(result.children[node].to_dataset(inherit=False))
        for node, (title, draw) in DRAWN.items()
        if node in result.children
    }


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


def barrier(node: xr.Dataset) -> go.Figure:
    """Loss on the line from the model before the transition to the one after it, beside the straight line."""
    places, losses = node["place"].values, node["loss"].values
    figure = go.Figure()
    path = go.Scatter(x=places, y=losses, mode="lines+markers", name="loss on the way", line={"color": VERMILION})
    figure.add_trace(path.update(hovertemplate="%{x:.0%} of the way: %{y:.3f} nats<extra></extra>"))
    ends = {"color": CHANCE, "dash": "dash"}
    chord = go.Scatter(x=places[[0, -1]], y=losses[[0, -1]], mode="lines", name="no barrier", line=ends)
    figure.add_trace(chord.update(hoverinfo="skip"))
    figure.update_xaxes(title_text="place between the two models", tickformat=".0%")
    figure.update_yaxes(title_text="loss, nats")
    figure.update_layout(legend={"y": -0.28})
    title = f"From before the transition to after it: a barrier of {float(node['barrier']):.2f} nats"
    return styled(figure, title, 360)


def sharpest(node: xr.Dataset) -> go.Figure:
    """Loss along the Hessian's sharpest direction, beside the parabola of its eigenvalue."""
    distance, loss, eigenvalue = node["distance"].values, node["loss_along"].values, float(node["eigenvalue"])
    figure = go.Figure()
    measured = go.Scatter(x=distance, y=loss, mode="lines+markers", name="loss", line={"color": VERMILION})
    figure.add_trace(measured.update(hovertemplate="%{x:g} away: %{y:.3f} nats<extra></extra>"))
    fine = np.linspace(distance[0], distance[-1], 81)
    parabola = float(node["loss_along"].sel(distance=0.0)) + eigenvalue * fine**2 / 2
    near = parabola <= loss.max() + 0.25 * np.ptp(loss)
    dashes = {"color": CHANCE, "dash": "dash"}
    name = f"parabola of the eigenvalue {eigenvalue:.2f}"
    figure.add_trace(go.Scatter(x=fine[near], y=parabola[near], mode="lines", name=name, line=dashes))
    figure.update_xaxes(title_text="distance from the trained weights (norm of the move)")
    figure.update_yaxes(title_text="loss, nats")
    figure.update_layout(legend={"y": -0.28})
    return styled(figure, "Loss along the sharpest direction", 360)


def swaps(node: xr.Dataset) -> go.Figure:
    """OOD accuracy, previous-token and induction score with parts of one model in the other."""
    shown = (
        ("accuracy", "OOD accuracy", ORANGE),
        ("previous_token", "previous-token score", BLUE),
        ("induction", "induction score", VERMILION),
    )
    known = [(name, label, color) for name, label, color in shown if name in node]
    figure = make_subplots(1, len(known), shared_yaxes=True, subplot_titles=[label for _, label, _ in known])
    rows = [str(name) for name in node["mixture"].values]
    for column, (name, label, color) in enumerate(known, start=1):
        values = node[name].values
        bars = go.Bar(x=values, y=rows, orientation="h", marker={"color": color}, showlegend=False)
        bars.update(text=[f"{value:.2f}" for value in values], textposition="outside", cliponaxis=False)
        figure.add_trace(bars.update(hovertemplate=f"%{{y}}: {label} %{{x:.3f}}<extra></extra>"), 1, column)
    figure.update_xaxes(range=[0, 1.15], tickvals=[0, 0.5, 1])
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return styled(figure, "Parts of the model after the transition in the one before it, and the reverse", 420)


def _accuracy_curves(node: xr.Dataset, dim: str, x: str, hover: str) -> go.Figure:
    """OOD accuracy against the coordinate `x`, one curve for each entry of `dim`."""
    figure = go.Figure()
    for each, color in zip(node[dim].values, CATEGORIES, strict=False):
        values = node["accuracy"].sel({dim: each}).values
        line = go.Scatter(x=node[x].values, y=values, mode="lines+markers", name=str(each), line={"color": color})
        figure.add_trace(line.update(hovertemplate=f"{each}: %{{y:.3f}} {hover}<extra></extra>"))
    figure.update_yaxes(title_text="OOD accuracy", range=[0, 1.02])
    return figure.update_layout(legend={"y": -0.26})


def restarts(node: xr.Dataset) -> go.Figure:
    """OOD accuracy after going on from the plateau, by how it was moved."""
    figure = _accuracy_curves(node, "start", "after", "after %{x} steps")
    figure.add_hline(y=0.5, line={"color": CHANCE, "dash": "dot"})
    figure.update_xaxes(title_text=f"steps after the restart at step {int(node['left'])}")
    return styled(figure, "Going on from the plateau, moved or not", 400)


def sparsity(node: xr.Dataset) -> go.Figure:
    """Coordinates that position directions live on, by optimizer and gains, beside random directions."""
    figure = go.Figure()
    values = node["positions"].values
    bars = go.Bar(x=node["variant"].values, y=values, marker={"color": BLUE}, text=[f"{v:.1f}" for v in values])
    figure.add_trace(bars.update(hovertemplate="%{x}: %{y:.2f} coordinates<extra></extra>", width=0.6))
    figure.add_hline(y=float(node["positions_null"]), line={"color": CHANCE, "dash": "dash"})
    figure.update_yaxes(title_text="coordinates (participation)", rangemode="tozero")
    return styled(figure, "How many coordinates learned positions live on (dashed: random directions)", 380)


def lengths(node: xr.Dataset) -> go.Figure:
    """OOD accuracy by sequence length, one line per position scheme."""
    figure = _accuracy_curves(node, "positions", "length", "at %{x} positions")
    figure.add_vline(x=int(node.attrs["trained_length"]), line={"color": CHANCE, "dash": "dot"})
    figure.update_xaxes(title_text="positions in a sequence (dotted: as trained)")
    return styled(figure, "Longer sequences than those trained on", 380)


def hessian_density(node: xr.Dataset) -> go.Figure:
    """Share of the Hessian's eigenvalues per unit, one curve per moment of the run, on a logarithmic scale."""
    figure = go.Figure()
    for moment, color in zip(node["moment"].values, CATEGORIES, strict=False):
        here = node.sel(moment=moment)
        name = f"{moment} (step {int(here['at'])})"
        curve = go.Scatter(x=node["value"].values, y=np.maximum(here["density"].values, 1e-6), name=name, mode="lines")
        hover = f"{moment}: %{{y:.2g}} per unit at %{{x:.2f}}<extra></extra>"
        figure.add_trace(curve.update(line={"color": color}, hovertemplate=hover))
    figure.update_yaxes(title_text="share of eigenvalues per unit", type="log", range=[-5, 2])
    figure.update_xaxes(title_text="eigenvalue")
    figure.update_layout(legend={"y": -0.26})
    return styled(figure, "Density of the Hessian's eigenvalues along the run", 420)


def channel_curves(node: xr.Dataset) -> go.Figure:
    """Coupling of layer 0 to layer 1 over the steps, in standard deviations from a random rotation."""
    figure = go.Figure()
    for pairing, color in zip(node["pairing"].values, (BLUE, ORANGE, CATEGORIES[2]), strict=True):
        values = node["coupling_z"].sel(pairing=pairing).values
        line = go.Scatter(x=node["step"].values, y=values, mode="lines+markers", name=str(pairing))
        hover = f"{pairing}: z = %{{y:.1f}} at step %{{x}}<extra></extra>"
        figure.add_trace(line.update(line={"color": color}, hovertemplate=hover))
    figure.add_hline(y=0, line={"color": CHANCE, "dash": "dash"})
    if np.isfinite(node.attrs["transition"]):
        figure.add_vline(x=float(node.attrs["transition"]), line={"color": CHANCE, "dash": "dot"})
    figure.update_xaxes(title_text="step (dotted: transition)")
    figure.update_yaxes(title_text="z of the coupling")
    figure.update_layout(legend={"y": -0.26})
    return styled(figure, "Channels from layer 0 to layer 1 over training", 400)


DRAWN = {
    "ablation": ("Ablations beside random controls", ablations),
    "sensitivity": ("Loss along the sharpest direction", sharpest),
    "path": ("Loss barrier between before and after", barrier),
    "swap": ("Component swaps", swaps),
    "study_plateau": ("Restarts from the plateau", restarts),
    "study_sparsity": ("Sparsity of learned positions", sparsity),
    "study_lengths": ("Longer sequences", lengths),
    "study_spectrum": ("Density of the Hessian", hessian_density),
    "study_channels": ("Channels over training", channel_curves),
}
