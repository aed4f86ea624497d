"""The loss around and between models of a run, drawn: the line from before the transition to after it, the sharpest
direction, and what parts of one model do in the other."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.theme import BLUE, CHANCE, ORANGE, VERMILION, styled


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
    shown = (("accuracy", "OOD accuracy", ORANGE), ("previous_token", "previous-token score", BLUE),
             ("induction", "induction score", VERMILION))  # fmt: skip
    known = [(name, label, colour) for name, label, colour in shown if name in node]
    figure = make_subplots(1, len(known), shared_yaxes=True, subplot_titles=[label for _, label, _ in known])
    rows = [str(name) for name in node["mixture"].values]
    for column, (name, label, colour) in enumerate(known, start=1):
        values = node[name].values
        bars = go.Bar(x=values, y=rows, orientation="h", marker={"color": colour}, showlegend=False)
        bars.update(text=[f"{value:.2f}" for value in values], textposition="outside", cliponaxis=False)
        figure.add_trace(bars.update(hovertemplate=f"%{{y}}: {label} %{{x:.3f}}<extra></extra>"), 1, column)
    figure.update_xaxes(range=[0, 1.15], tickvals=[0, 0.5, 1])
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return styled(figure, "Parts of the model after the transition in the one before it, and the reverse", 420)
