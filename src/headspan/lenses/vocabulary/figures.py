"""A vocabulary result, drawn: directions that read as tokens, copying and matching heads, eigenvalues, relations."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.errors import ArgumentError
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, ORANGE, SEQUENTIAL, around_chance, styled

LEVEL = 0.05
BEHIND = {
    "Directions that read as tokens": ("OV/top_mass",),
    "Copying and matching": ("copying/copying", "matching"),
    "Relations": ("relations/relation_score", "hits"),
}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""
TITLES = {
    "copying": "copying (W<sub>OV</sub>)",
    "matching": "matching (W<sub>QK</sub>)",
}


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for; maps need whole layers of heads."""
    drawn: dict[str, go.Figure] = {}
    whole = _is_whole(result)
    circuits = [kind for kind in ("OV", "QK") if kind in result]
    if circuits and whole:
        drawn["Directions that read as tokens"] = direction_maps(result, circuits)
    if "copying" in result:
        if whole:
            drawn["Copying and matching"] = copying_maps(result)
        drawn["Eigenvalues of circuits over tokens"] = eigenvalue_planes(result)
    if "relations" in result and whole:
        drawn["Relations"] = relation_map(result)
    return drawn


def _is_whole(result: Result) -> bool:
    """Whether all heads of the layers are there, so that they make a grid."""
    if "copying" not in result:
        return False
    try:
        result.grid("copying")
    except ArgumentError:
        return False
    return True


def direction_maps(result: Result, circuits: list[str]) -> go.Figure:
    """Layer by head: how many of the leading directions read as tokens, one panel per circuit and side."""
    grids = {kind: result.grid(kind) for kind in circuits}
    panels = [(kind, str(side)) for kind, grid in grids.items() for side in grid["side"].values]
    titles = [f"W<sub>{kind}</sub>, {side} side" for kind, side in panels]
    figure = make_subplots(1, len(panels), subplot_titles=titles, horizontal_spacing=0.035, shared_yaxes=True)
    for column, (kind, side) in enumerate(panels, start=1):
        grid = grids[kind].sel(side=side)
        read = (grid["top_mass_q"] < LEVEL).sum("direction")
        best = grid["tokens_high"].isel(direction=0)
        panel = _panel(grid, read.transpose("layer", "head").values)
        panel.update(customdata=best.transpose("layer", "head").values)
        panel.update(hovertemplate="L%{y}H%{x}: %{z:.0f}<br>direction 1: %{customdata}<extra></extra>")
        figure.add_trace(panel, 1, column)
    layers, k = grid.sizes["layer"], grid.sizes["direction"]
    figure.update_layout(coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": k}, margin={"t": 96})
    _label_axes(figure, layers, grid.sizes["head"])
    title = f"Leading directions (of {k}) whose tokens are more concentrated than chance, q < {LEVEL:g}"
    return styled(figure, title, 180 + max(160, 22 * layers))


def _panel(grid: xr.Dataset, z: np.ndarray) -> go.Heatmap:
    return go.Heatmap(
        z=z, x=grid["head"].values, y=grid["layer"].values, coloraxis="coloraxis", xgap=1, ygap=1, hoverongaps=False
    )


def _label_axes(figure: go.Figure, layers: int, heads: int) -> None:
    figure.update_xaxes(title_text="head", showgrid=False, zeroline=False, ticks="", dtick=2 if heads > 8 else 1)
    figure.update_yaxes(
        autorange="reversed", showgrid=False, zeroline=False, ticks="", dtick=1 if layers < 16 else None
    )
    figure.update_yaxes(title_text="layer", col=1)


def copying_maps(result: Result) -> go.Figure:
    """Layer by head: copying and matching scores, pale at 0."""
    grid = result.grid("copying")
    names = [name for name in TITLES if name in grid]
    figure = make_subplots(1, len(names), subplot_titles=[TITLES[name] for name in names], shared_yaxes=True)
    for column, name in enumerate(names, start=1):
        panel = _panel(grid, grid[name].values)
        panel.update(customdata=grid[f"{name}_z"].values)
        panel.update(hovertemplate="L%{y}H%{x}: %{z:+.2f}, z = %{customdata:+.1f}<extra></extra>")
        figure.add_trace(panel, 1, column)
    figure.update_layout(coloraxis=around_chance(-1.0, 0.0, 1.0), margin={"t": 96})
    _label_axes(figure, grid.sizes["layer"], grid.sizes["head"])
    title = "Sum of eigenvalues over tokens / sum of their sizes"
    return styled(figure, title, 180 + max(160, 22 * grid.sizes["layer"]))


def eigenvalue_planes(result: Result) -> go.Figure:
    """Eigenvalues of the heads with the highest and the lowest score of each circuit, in the complex plane."""
    node = result.dataset("copying")
    panels = []
    for name in (name for name in TITLES if name in node):
        known = np.flatnonzero(np.isfinite(node[name].values))
        if len(known):
            order = known[np.argsort(node[name].values[known], kind="stable")]
            panels += [(name, place) for place in dict.fromkeys((order[-1], order[0]))]
    titles = [
        f"{node['head'].values[place]}, {TITLES[name]}<br>score {float(node[name][place]):+.2f}"
        for name, place in panels
    ]
    figure = make_subplots(1, max(len(panels), 1), subplot_titles=titles, horizontal_spacing=0.06)
    turn = np.linspace(0, 2 * np.pi, 100)
    for column, (name, place) in enumerate(panels, start=1):
        real, imag = (node[f"{name}_eigenvalue_{part}"].values[place] for part in ("real", "imag"))
        # The circle that the eigenvalues of independent entries with the same sum of squares would fill.
        radius = np.sqrt(2 * np.mean(real**2 + imag**2)) or 1.0
        points = go.Scatter(
            x=real / radius, y=imag / radius, mode="markers", name="eigenvalues", showlegend=column == 1
        )
        points.update(marker={"color": ORANGE if real.sum() > 0 else BLUE, "size": 7, "opacity": 0.8})
        points.update(hovertemplate="%{x:.2f} %{y:+.2f} i<extra></extra>")
        circle = go.Scatter(x=np.cos(turn), y=np.sin(turn), mode="lines", line={"color": CHANCE, "dash": "dot"})
        circle.update(name="independent entries (Ginibre)", showlegend=column == 1, hoverinfo="skip")
        figure.add_trace(points, 1, column)
        figure.add_trace(circle, 1, column)
        figure.update_yaxes(scaleanchor=f"x{column if column > 1 else ''}", row=1, col=column)
    figure.update_xaxes(title_text="real part", range=[-1.7, 1.7])
    figure.update_yaxes(title_text="imaginary part", col=1)
    figure.update_layout(margin={"t": 104, "b": 96}, legend={"y": -0.3})
    return styled(figure, "Eigenvalues over tokens of the most and the least positive head", 420)


def relation_map(result: Result) -> go.Figure:
    """Relation by layer: the z-score of the layer's best head."""
    grid = result.grid("relations")
    z = grid["relation_score_z"].transpose("relation", "layer", "head").values
    filled = np.where(np.isnan(z), -np.inf, z)
    best, values = filled.argmax(-1), filled.max(-1)
    q = np.take_along_axis(grid["relation_score_q"].transpose("relation", "layer", "head").values, best[..., None], -1)
    hits = np.take_along_axis(grid["hits"].transpose("relation", "layer", "head").values, best[..., None], -1)
    labels = [[f"L{layer}H{head}" for layer, head in zip(grid["layer"].values, row, strict=True)] for row in best]
    told = np.dstack([np.array(labels, dtype=object), q[..., 0], hits[..., 0]])
    names = [
        f"{name} ({pairs} pairs)" for name, pairs in zip(grid["relation"].values, grid["pairs"].values, strict=True)
    ]
    panel = go.Heatmap(z=np.where(np.isinf(values), np.nan, values), x=grid["layer"].values, y=names, customdata=told)
    panel.update(coloraxis="coloraxis", xgap=1, ygap=1, hoverongaps=False)
    hover = "%{customdata[0]}: z = %{z:.1f}, q = %{customdata[1]:.2g}, hits %{customdata[2]:.0%}<extra>%{y}</extra>"
    figure = go.Figure(panel.update(hovertemplate=hover))
    top = float(np.nanmax(np.where(np.isinf(values), np.nan, values), initial=1.0))
    figure.update_layout(coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": top, "colorbar": {"title": "z"}})
    figure.update_xaxes(title_text="layer", showgrid=False, ticks="", dtick=1 if grid.sizes["layer"] < 16 else None)
    figure.update_yaxes(showgrid=False, ticks="", autorange="reversed")
    title = "Relations between words: best head of each layer, standard deviations above permuted pairs"
    return styled(figure, title, 150 + 30 * len(names))
