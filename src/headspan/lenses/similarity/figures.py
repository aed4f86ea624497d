"""Attention heads as subspaces, drawn: distances by layer, angles, maps of heads and of directions."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import LAYER, HeadLabel
from headspan.finding import percent
from headspan.lenses.similarity.schema import DISTANCE_NAMES
from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, CHANCE, LINE, SEQUENTIAL, around_chance, styled

COLUMNS = 4
SPACES = {"R_Q": "R<sub>Q</sub>", "R_K": "R<sub>K</sub>", "N_Q": "N<sub>Q</sub>", "N_K": "N<sub>K</sub>"}
BESIDE = "expected %{customdata[0]:.2f}, z = %{customdata[1]:.0f}"
SYMBOLS = ("circle", "square", "diamond", "cross")
BEHIND = {
    "Principal angles of one head": ("chosen_angle_count",),
    "Principal angles": ("angle_count",),
    "Distances within layers": ("layer_distance",),
    "Map of heads": ("mds", "tsne"),
    "Sampled directions": ("sample_tsne",),
}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    grid = result.grid()
    drawn = {"Principal angles": angle_histograms(grid)}
    if "chosen_angle_count" in grid:
        drawn = {"Principal angles of one head": angle_histograms(grid, "chosen_"), **drawn}
    if grid.sizes["peer"] > 1:
        drawn["Distances within layers"] = distance_heatmaps(grid)
    if "mds" in grid:
        drawn["Map of heads"] = head_maps(grid)
    if "sample_tsne" in grid:
        drawn["Sampled directions"] = direction_maps(grid)
    return drawn


def distance_heatmaps(grid: xr.Dataset) -> go.Figure:
    """One panel of head against head per layer, all on one color scale that is pale at the value expected."""
    layers = [int(layer) for layer in grid[LAYER].values]
    columns = min(COLUMNS, len(layers))
    rows = -(-len(layers) // columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=[f"Layer {layer}" for layer in layers],
        horizontal_spacing=0.035,
        vertical_spacing=0.22 / rows,
    )
    own = np.eye(grid.sizes["peer"], dtype=bool)
    for place, layer in enumerate(layers):
        here = grid.isel({LAYER: place})
        panel = go.Heatmap(
            z=np.where(own, np.nan, here["layer_distance"].values),
            x=np.arange(grid.sizes["peer"]),
            y=grid["head"].values,
            customdata=np.stack([here["layer_distance_null"].values, here["layer_distance_z"].values], axis=-1),
            hovertemplate=f"L{layer}H%{{y}} and L{layer}H%{{x}}: %{{z:.2f}}<br>{BESIDE}<extra></extra>",
            coloraxis="coloraxis",
            hoverongaps=False,
            xgap=1,
            ygap=1,
        )
        figure.add_trace(panel, place // columns + 1, place % columns + 1)
    plain = {"showgrid": False, "zeroline": False, "ticks": "", "showticklabels": False, "constrain": "domain"}
    figure.update_xaxes(**plain)
    figure.update_yaxes(**plain, autorange="reversed", constraintoward="top")
    figure.update_xaxes(showticklabels=True, title_text="head", row=rows)
    figure.update_yaxes(showticklabels=True, title_text="head", col=1)
    for place in range(len(layers)):
        axis = "" if place == 0 else str(place + 1)
        figure.layout[f"yaxis{axis}"].update(scaleanchor=f"x{axis}")
    figure.update_layout(coloraxis=_colors_around_null(grid))
    name = DISTANCE_NAMES[grid.attrs["distance"]]
    title = f"{name[0].upper()}{name[1:]} distance of attention spaces, head against head"
    if grid.attrs["n_kv_heads"] < grid.sizes["head"]:
        figure.update_layout(title_subtitle_text="Heads that share a key are near by construction", margin_t=92)
    return styled(figure, title, 90 + 215 * rows)


def _colors_around_null(grid: xr.Dataset) -> dict[str, object]:
    """A diverging scale with its middle at the value expected under the null, which the color bar names."""
    expected = float(grid["typical_distance"])
    if not np.isfinite(expected):
        return {"colorscale": SEQUENTIAL}
    distances = grid["layer_distance"].values
    distances = distances[:, ~np.eye(distances.shape[-1], dtype=bool)]
    return around_chance(float(np.nanmin(distances)), expected, float(np.nanmax(distances)))


def angle_histograms(grid: xr.Dataset, of: str = "") -> go.Figure:
    """The four families of query and key angles, of all heads or the chosen one, with those of random spaces as a line.

    `of` is what the names of the counts begin with: "chosen_" for one head.
    """
    whose, unit = (grid.attrs["sample_head"], "angles") if of else ("this model", "angles per head")
    names = [str(name) for name in grid["combination"].values]
    figure = make_subplots(2, 2, subplot_titles=[_pair_title(grid, name, of) for name in names], vertical_spacing=0.16)
    for place, name in enumerate(names):
        here, where = grid.sel(combination=name), (place // 2 + 1, place % 2 + 1)
        bars = go.Bar(
            x=grid["bin"].values,
            y=here[f"{of}angle_count"].values,
            name=whose,
            marker_color=BLUE,
            legendgroup="model",
            showlegend=place == 0,
            hovertemplate=f"%{{x}}°: %{{y:.2f}} {unit}<extra>{whose}</extra>",
        )
        line = go.Scatter(
            x=grid["bin"].values,
            y=here[f"{of}angle_count_null"].values,
            name="random spaces of the same dimensions",
            mode="lines",
            line={"color": CHANCE, "width": 2.5, "shape": "hvh"},
            legendgroup="null",
            showlegend=place == 0,
            hovertemplate=f"%{{x}}°: %{{y:.2f}} {unit}<extra>random spaces</extra>",
        )
        figure.add_trace(bars, *where)
        figure.add_trace(line, *where)
    figure.update_xaxes(range=[0, 90], dtick=30, ticksuffix="°")
    figure.update_yaxes(title_text=unit, col=1)
    title = f"Principal angles of query and key spaces{f' of {whose}' if of else ''}"
    return styled(figure, title, 620)


def _pair_title(grid: xr.Dataset, name: str, of: str) -> str:
    first, second = (f"{part[0]}_{part[1]}" for part in name.split("_"))
    zeros = float(grid[f"{of}forced_zeros"].sel(combination=name))
    more = f"; {zeros:.4g} more are 0 by dimension" if zeros else ""
    return f"{SPACES[first]} with {SPACES[second]}{more}"


def head_maps(grid: xr.Dataset) -> go.Figure:
    """All heads as points, by classical scaling and by t-SNE, colored by layer."""
    shares = grid["mds_share"].values
    titles = (
        f"Classical scaling ({percent(shares[0], 1)} and {percent(shares[1], 1)} of the spread)",
        "t-SNE (neighbors only)",
    )
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.05)
    layers = np.repeat(grid[LAYER].values, grid.sizes["head"])
    labels = [str(HeadLabel(int(layer), int(head))) for layer in grid[LAYER].values for head in grid["head"].values]
    for column, name in enumerate(("mds", "tsne"), start=1):
        points = grid[name].values.reshape(-1, 2)
        dots = go.Scatter(
            x=points[:, 0],
            y=points[:, 1],
            mode="markers",
            text=labels,
            hovertemplate="%{text}<extra></extra>",
            marker={"color": layers, "coloraxis": "coloraxis", "size": 9, "line": {"width": 1, "color": CHANCE}},
            showlegend=False,
        )
        figure.add_trace(dots, 1, column)
    _bare_plane(figure)
    bar = {"title": {"text": "layer"}, "dtick": max(1, grid.sizes[LAYER] // 6)}
    figure.update_layout(coloraxis={"colorscale": SEQUENTIAL, "colorbar": bar})
    return styled(figure, "Heads by the distance of their attention spaces", 460)


def _bare_plane(figure: go.Figure) -> None:
    """Axes whose numbers mean nothing: no ticks, a frame only."""
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(showticklabels=False, showgrid=False, zeroline=False, ticks="", showline=True, mirror=True)
        update(linecolor=LINE)


def direction_maps(grid: xr.Dataset) -> go.Figure:
    """Directions sampled from the four spaces of one head, beside random spaces of the same dimensions."""
    titles = (f"{grid.attrs['sample_head']}", "Random spaces of the same dimensions")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.05)
    for column, name in enumerate(("sample_tsne", "sample_tsne_null"), start=1):
        for place, space in enumerate(grid["subspace"].values):
            points = grid[name].sel(subspace=space).values
            dots = go.Scatter(
                x=points[:, 0],
                y=points[:, 1],
                mode="markers",
                name=SPACES[str(space)],
                legendgroup=str(space),
                showlegend=column == 1,
                marker={"color": CATEGORIES[place], "size": 6, "symbol": SYMBOLS[place], "opacity": 0.85},
                hoverinfo="name",
            )
            figure.add_trace(dots, 1, column)
    _bare_plane(figure)
    figure.update_layout(legend={"y": -0.04})
    return styled(figure, "t-SNE of directions sampled from what a head reads and does not read", 480)
