"""Studies that train further models, drawn: restarts from the plateau, sparsity of positions, longer sequences."""

from __future__ import annotations

import plotly.graph_objects as go
import xarray as xr

from headspan.theme import BLUE, CATEGORIES, CHANCE, styled


def study_figures(result: xr.DataTree) -> dict[str, go.Figure]:
    """One figure per study that was kept with the run."""
    drawn = {}
    for name, (title, draw) in DRAWN.items():
        if f"study_{name}" in result.children:
            drawn[title] = draw(result.children[f"study_{name}"].to_dataset(inherit=False))
    return drawn


def restarts(node: xr.Dataset) -> go.Figure:
    """OOD accuracy after going on from the plateau, by how it was moved."""
    figure = go.Figure()
    for start, colour in zip(node["start"].values, CATEGORIES, strict=False):
        values = node["accuracy"].sel(start=start).values
        line = go.Scatter(x=node["after"].values, y=values, mode="lines+markers", name=str(start))
        hover = f"{start}: %{{y:.3f}} after %{{x}} steps<extra></extra>"
        figure.add_trace(line.update(line={"color": colour}, hovertemplate=hover))
    figure.add_hline(y=0.5, line={"color": CHANCE, "dash": "dot"})
    figure.update_xaxes(title_text=f"steps after the restart at step {int(node['left'])}")
    figure.update_yaxes(title_text="OOD accuracy", range=[0, 1])
    figure.update_layout(legend={"y": -0.24})
    return styled(figure, "Going on from the plateau, moved or not", 400)


def sparsity(node: xr.Dataset) -> go.Figure:
    """Coordinates that position directions live on, by optimiser and gains, beside random directions."""
    figure = go.Figure()
    values = node["positions"].values
    bars = go.Bar(x=node["variant"].values, y=values, marker={"color": BLUE}, text=[f"{v:.1f}" for v in values])
    figure.add_trace(bars.update(hovertemplate="%{x}: %{y:.2f} coordinates<extra></extra>", width=0.6))
    figure.add_hline(y=float(node["chance"]), line={"color": CHANCE, "dash": "dash"})
    figure.update_yaxes(title_text="coordinates (participation)", rangemode="tozero")
    return styled(figure, "How many coordinates learned positions live on (dashed: random directions)", 380)


def lengths(node: xr.Dataset) -> go.Figure:
    """OOD accuracy by sequence length, one line per position scheme."""
    figure = go.Figure()
    for scheme, colour in zip(node["positions"].values, CATEGORIES, strict=False):
        values = node["accuracy"].sel(positions=scheme).values
        line = go.Scatter(x=node["length"].values, y=values, mode="lines+markers", name=f"{scheme} positions")
        hover = f"{scheme}: %{{y:.3f}} at %{{x}} positions<extra></extra>"
        figure.add_trace(line.update(line={"color": colour}, hovertemplate=hover))
    figure.add_vline(x=int(node.attrs["trained_length"]), line={"color": CHANCE, "dash": "dot"})
    figure.update_xaxes(title_text="positions in a sequence (dotted: as trained)")
    figure.update_yaxes(title_text="OOD accuracy", range=[0, 1.02])
    figure.update_layout(legend={"y": -0.26})
    return styled(figure, "Longer sequences than those trained on", 380)


DRAWN = {
    "plateau": ("Restarts from the plateau", restarts),
    "sparsity": ("Sparsity of learned positions", sparsity),
    "lengths": ("Longer sequences", lengths),
}
