"""Detector scores, drawn: layer by head, designed prompts above and text below; identity from the weights."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.lenses.detect.schema import DETECTORS
from headspan.result import Result
from headspan.theme import SEQUENTIAL, VERMILION, around_chance, styled

BEHIND = {
    "Detector scores": tuple(f"{name}{part}" for name in DETECTORS for part in ("", "_se", "_label")),
    "Identity from the weights": ("identity_weights",),
}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    grid = result.grid()
    drawn = {"Detector scores": score_maps(grid)} if "prompt" in grid.coords else {}
    if np.isfinite(grid["identity_weights"].values).any():
        drawn["Identity from the weights"] = identity_map(grid)
    return drawn


def score_maps(result: xr.Dataset) -> go.Figure:
    """One panel per detector and kind of prompt; a ring marks the labeled heads."""
    prompts = result["prompt"].values
    titles = [
        f"{name.replace('_', ' ')}<br>uniform {float(result[f'{name}_null'].sel(prompt=prompt)):.3f}"
        for prompt in prompts
        for name in DETECTORS
    ]
    rows = len(prompts)
    figure = make_subplots(
        rows, len(DETECTORS), subplot_titles=titles, horizontal_spacing=0.025, vertical_spacing=0.36 / max(rows, 2)
    )
    for row, prompt in enumerate(prompts, start=1):
        for column, name in enumerate(DETECTORS, start=1):
            here = result.sel(prompt=prompt)
            figure.add_trace(_panel(here, name), row, column)
            figure.add_trace(_marks(here, name), row, column)
        figure.update_yaxes(title_text=f"{prompt}<br>layer", row=row, col=1)
    figure.update_yaxes(
        autorange="reversed", showgrid=False, zeroline=False, ticks="", dtick=1 if result.sizes["layer"] < 16 else None
    )
    figure.update_xaxes(showgrid=False, zeroline=False, ticks="", dtick=2 if result.sizes["head"] > 8 else 1)
    figure.update_xaxes(title_text="head", row=rows)
    figure.update_xaxes(range=[-0.5, result.sizes["head"] - 0.5])
    figure.update_layout(
        coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": 1}, showlegend=False, margin={"t": 104}
    )
    height = 190 + rows * (70 + max(110, 24 * result.sizes["layer"]))
    return styled(
        figure,
        f"Attention to the target of each kind of head; rings: labeled, above {result.attrs['threshold']}",
        height,
    )


def _panel(here: xr.Dataset, name: str) -> go.Heatmap:
    panel = go.Heatmap(z=here[name].values, x=here["head"].values, y=here["layer"].values, coloraxis="coloraxis")
    panel.update(customdata=here[f"{name}_se"].values, xgap=1, ygap=1, hoverongaps=False)
    return panel.update(hovertemplate="L%{y}H%{x}: %{z:.3f} ± %{customdata:.3f}<extra></extra>")


def _marks(here: xr.Dataset, name: str) -> go.Scatter:
    layer, head = np.nonzero(here[f"{name}_label"].values)
    marks = go.Scatter(x=here["head"].values[head], y=here["layer"].values[layer], mode="markers", hoverinfo="skip")
    # What a mark stands on, for pages that filter heads; the mouse is told by the cell below.
    marks.update(meta={"names": "L%{y}H%{x}"})
    return marks.update(marker={"symbol": "circle-open", "size": 9, "line": {"width": 2}, "color": VERMILION})


def identity_map(result: xr.Dataset) -> go.Figure:
    """Signed identity score of the weights, pale at 0: orange copies, blue removes."""
    values = result["identity_weights"].values
    panel = go.Heatmap(
        z=values, x=result["head"].values, y=result["layer"].values, coloraxis="coloraxis", xgap=1, ygap=1
    )
    panel.update(customdata=values / float(result["identity_weights_null_sd"]), hoverongaps=False)
    panel.update(hovertemplate="L%{y}H%{x}: %{z:+.3f}, z = %{customdata:+.1f}<extra></extra>")
    figure = go.Figure(panel)
    figure.update_layout(coloraxis=around_chance(float(np.nanmin(values)), 0.0, float(np.nanmax(values))))
    figure.update_xaxes(title_text="head", showgrid=False, ticks="", dtick=1)
    figure.update_yaxes(title_text="layer", showgrid=False, ticks="", dtick=1, autorange="reversed")
    title = "Tr(W<sub>V</sub>W<sub>O</sub>), normalized: heads that copy (+) and that remove (-)"
    return styled(figure, title, 170 + max(150, 26 * result.sizes["layer"]))
