"""Few-shot prompts, drawn: attention between shots, what stays within them, clues expected."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import HeadLabel
from headspan.theme import BLUE, CHANCE, ORANGE, SEQUENTIAL, styled

COLUMNS = 4


def shot_figures(result: xr.DataTree) -> dict[str, go.Figure]:
    """The figures of a few-shot prompt beyond those of any prompt."""
    drawn = {
        "Attention between shots": shot_grid(result["shots"].to_dataset()),
        "Within shots": within_scatter(result["shots"].to_dataset()),
    }
    likelihood = result["likelihood"].to_dataset()
    if np.isfinite(likelihood["log_likelihood"].values).all():
        drawn["Held-out clues"] = likelihood_curve(likelihood)
    return drawn


def shot_grid(node: xr.Dataset) -> go.Figure:
    """Attention between shots, one panel per layer; the last shot is the one asked for."""
    layers, shots = node.sizes["layer"], node.sizes["query_shot"]
    columns = min(COLUMNS, layers)
    rows = -(-layers // columns)
    titles = [f"Layer {layer}" for layer in range(layers)]
    figure = make_subplots(
        rows, columns, subplot_titles=titles, horizontal_spacing=0.04, vertical_spacing=0.3 / rows, shared_yaxes=True
    )
    names = [*(str(number) for number in range(1, shots)), "asked"]
    for layer in range(layers):
        values = node["shot_map"].values[layer]
        panel = go.Heatmap(
            z=np.where(values > 0, values, np.nan), x=names, y=names, coloraxis="coloraxis", xgap=1, ygap=1
        )
        panel.update(hovertemplate="shot %{y} → shot %{x}: %{z:.3f}<extra></extra>", hoverongaps=False)
        figure.add_trace(panel, layer // columns + 1, layer % columns + 1)
    figure.update_xaxes(type="category", showgrid=False, ticks="")
    figure.update_yaxes(type="category", showgrid=False, ticks="", autorange="reversed")
    figure.update_layout(coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": 1})
    return styled(figure, "Attention between shots, mean over heads", 110 + 210 * rows)


def within_scatter(node: xr.Dataset) -> go.Figure:
    """Every head: what stays within shots, against what stays within pieces cut elsewhere."""
    names = [str(HeadLabel(int(layer), int(head))) for layer in node["layer"].values for head in node["head"].values]
    within, chance, sd = (node[name].values.ravel() for name in ("within", "within_chance", "within_sd"))
    p = node["within_p_value"].values.ravel()
    points = go.Scatter(x=chance, y=within, mode="markers", text=names, customdata=p, name="heads")
    points.update(error_x={"array": 2 * sd, "color": CHANCE, "thickness": 1}, marker={"color": BLUE, "size": 8})
    points.update(hovertemplate="%{text}: %{y:.2f} within, %{x:.2f} moved, p = %{customdata:.2g}<extra></extra>")
    low, high = float(np.nanmin([within, chance])), float(np.nanmax([within, chance]))
    same = go.Scatter(x=[low, high], y=[low, high], mode="lines", name="no difference", hoverinfo="skip")
    figure = go.Figure([same.update(line={"color": CHANCE, "dash": "dash"}), points])
    figure.update_xaxes(title_text="within shots with moved boundaries (± 2 sd)")
    figure.update_yaxes(title_text="within shots")
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Do heads see the shots?", 460)


def likelihood_curve(node: xr.Dataset) -> go.Figure:
    """Log-likelihood of the held-out clues against the number of shots."""
    line = go.Scatter(x=node["shots"].values, y=node["log_likelihood"].values, mode="lines+markers")
    line.update(error_y={"array": node["standard_error"].values, "color": CHANCE}, line={"color": ORANGE})
    figure = go.Figure(line.update(hovertemplate="%{x} shots: %{y:.3f}<extra></extra>"))
    figure.update_xaxes(title_text="shots", dtick=1)
    figure.update_yaxes(title_text="log-likelihood per token, nats")
    return styled(figure, "Do shots make the right clue likelier? (± standard error over words)", 380)
