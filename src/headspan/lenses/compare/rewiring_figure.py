"""Edges gained, lost, strengthened and weakened: as arrows on the grid of heads, and as kernels before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import xarray as xr

from headspan.dims import HeadLabel
from headspan.lenses.affinity.pairing_figures import pairing_name, panels
from headspan.lenses.affinity.wiring_places import Place, bowed, grid_places, group_ties, stopped
from headspan.lenses.compare import edge_changes, wiring_pairings
from headspan.theme import BLUE, CHANCE, GREY, LINE, ORANGE, SKY, VERMILION, styled

COLOURS = {"gained": BLUE, "strengthened": SKY, "lost": VERMILION, "weakened": ORANGE}
DASHES = {"OQ": "solid", "OK": "dash", "OV": "dot"}
BOWS = {"OQ": -0.09, "OK": 0.05, "OV": 0.13}
TOP, DOT, WIDTH = 20, 13, 800
MOST_POINTS, SVG_POINTS = 4000, 2000
"""Pairs drawn that did not turn over, and how many are drawn as SVG; more are drawn by the graphics card."""


def turned_edges(result: xr.DataTree, top: int = TOP) -> pd.DataFrame:
    """The `top` largest changes of each kind and pairing: edges gained, lost, and kept but changed beyond the null."""
    level = float(result.attrs["level"])
    parts = []
    for pairing in wiring_pairings(result):
        table = _changes(result, pairing, level)
        parts += [table[table["status"] == status][:top] for status in COLOURS]
    return pd.concat(parts, ignore_index=True)


def _changes(result: xr.DataTree, pairing: str, level: float) -> pd.DataFrame:
    """All pairs, those kept as edges and changed beyond the null as strengthened or weakened."""
    table = edge_changes(result, pairing)
    moved = (table["status"] == "kept") & (table["q_value"] < level)
    rose = table["change"] > table["change_chance"]
    return table.assign(status=table["status"].mask(moved & rose, "strengthened").mask(moved & ~rose, "weakened"))


def rewiring_diagram(result: xr.DataTree, top: int = TOP) -> go.Figure:
    """Arrows from writer to reader for edges that turned; faint where a random change explains them."""
    table = turned_edges(result, top)
    layers = [int(layer) for layer in result["drift"].to_dataset()["layer"].values]
    n_heads, n_kv_heads = int(result.attrs["n_heads"]), int(result.attrs["n_kv_heads"])
    places = grid_places(layers, n_heads, n_kv_heads)
    height = min(1500, 190 + max(320, (54 if n_kv_heads == n_heads else 92) * len(layers)))
    figure = go.Figure()
    xs, ys = group_ties(places, n_heads, n_kv_heads)
    if xs:
        ties = {"color": LINE, "width": 1}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=ties, hoverinfo="skip", showlegend=False)
    pixels = (WIDTH / n_heads, (height - 190) / max(1, len(layers)))
    for status, pairing in ((status, pairing) for status in COLOURS for pairing in wiring_pairings(result)):
        chosen = table[(table["status"] == status) & (table["pairing"] == pairing)]
        line = {"color": COLOURS[status], "dash": DASHES.get(pairing, "solid"), "width": 2.5}
        name = f"{status}, {pairing_name(pairing)}"
        if len(chosen):
            figure.add_scatter(x=[None], y=[None], mode="lines", line=line, name=name, legendgroup=name)
        figure.add_traces([_arrow(row, places, pixels, line, name, result) for row in chosen.to_dict("records")])
    figure.add_trace(_dots(places, table))
    figure.update_xaxes(title_text="head", range=[-0.6, n_heads - 0.4], zeroline=False, showgrid=False)
    figure.update_xaxes(tickvals=list(range(0, n_heads, 1 + n_heads // 24)))
    figure.update_yaxes(
        title_text="layer", tickvals=list(range(len(layers))), ticktext=[str(layer) for layer in layers]
    )
    figure.update_yaxes(range=[-0.75, len(layers) - 0.5], zeroline=False)
    figure.update_layout(hovermode="closest", legend={"y": 1.0, "yanchor": "bottom"})
    return styled(figure, f"Edges gained and lost, and those that changed beyond chance; up to {top} of each", height)


def _arrow(
    edge: Mapping[str, Any],
    places: Mapping[str, Place],
    pixels: Place,
    line: dict[str, Any],
    name: str,
    result: xr.DataTree,
) -> go.Scatter:
    curve = bowed(places[edge["src"]], places[edge["dst"]], BOWS.get(edge["pairing"], 0.0))
    curve = stopped(curve, pixels, DOT / 2, 9)
    certain = edge["q_value"] < float(result.attrs["level"])
    text = (
        f"<b>{edge['src']} → {edge['dst']}</b> ({edge['pairing']}), {edge['status']}<br>"
        f"kernel {edge['kernel_before']:.3g} before, {edge['kernel_after']:.3g} after; a random change: "
        f"{edge['change_chance']:+.2g} (z = {edge['change_z']:.1f}, q = {edge['q_value']:.2g})"
    )
    return go.Scatter(
        x=curve[:, 0].round(4),
        y=curve[:, 1].round(4),
        mode="lines+markers",
        line={**line, "width": 2.2 if certain else 1.2, "simplify": False},
        marker={
            "symbol": "arrow",
            "size": [0] * (len(curve) - 1) + [9],
            "angleref": "previous",
            "color": line["color"],
            "line": {"width": 0},
        },
        opacity=0.95 if certain else 0.4,
        meta={"pairing": edge["pairing"], "src": edge["src"], "dst": edge["dst"], "status": edge["status"]},
        name=f"{edge['src']} → {edge['dst']}",
        legendgroup=name,
        showlegend=False,
        hovertemplate=text + "<extra></extra>",
    )


def _dots(places: Mapping[str, Place], table: pd.DataFrame) -> go.Scatter:
    """Every head; those without a gain or loss small and faint."""
    busy = {*table["src"], *table["dst"]}
    return go.Scatter(
        x=[place[0] for place in places.values()],
        y=[place[1] for place in places.values()],
        text=list(places),
        mode="markers",
        marker={
            "size": [DOT if label in busy else DOT / 2 for label in places],
            "opacity": [1.0 if label in busy else 0.35 for label in places],
            "symbol": ["square" if HeadLabel.parse(label).kv else "circle" for label in places],
            "color": GREY,
        },
        showlegend=False,
        hovertemplate="%{text}<extra></extra>",
    )


def kernel_scatter(result: xr.DataTree) -> go.Figure:
    """Every composing pair: its projection kernel before and after, edges that turned coloured."""
    pairings = wiring_pairings(result)
    figure, where = panels([pairing_name(pairing) for pairing in pairings], horizontal_spacing=0.06)
    named: set[str] = set()
    for pairing, place in zip(pairings, where, strict=True):
        table = _changes(result, pairing, float(result.attrs["level"]))
        kernels = table[["kernel_before", "kernel_after"]].to_numpy()
        limits = [float(kernels.min()), float(kernels.max())]
        line = {"color": LINE, "width": 1.5}
        diagonal = go.Scatter(x=limits, y=limits, mode="lines", line=line, hoverinfo="skip", showlegend=False)
        figure.add_trace(diagonal, *place)
        groups = {"neither": table[~table["status"].isin(list(COLOURS))][:MOST_POINTS]}
        groups |= {status: table[table["status"] == status] for status in COLOURS}
        for name, rows in groups.items():
            # An entry of the legend belongs to the first panel that has such points.
            figure.add_trace(_points(name, rows, shown=bool(len(rows)) and name not in named), *place)
            named |= {name} if len(rows) else set()
    figure.update_xaxes(title_text="kernel before")
    figure.update_yaxes(title_text="kernel after", col=1)
    return styled(figure, "Projection kernels before and after", 440)


def _points(name: str, rows: pd.DataFrame, shown: bool) -> go.Scatter | go.Scattergl:
    turned = name in COLOURS
    kind = go.Scattergl if len(rows) > SVG_POINTS else go.Scatter
    return kind(
        x=rows["kernel_before"],
        y=rows["kernel_after"],
        text=rows["src"] + " → " + rows["dst"],
        customdata=rows[["change_z", "q_value"]].to_numpy(),
        mode="markers",
        name=name,
        legendgroup=name,
        showlegend=shown,
        marker={"color": COLOURS.get(name, CHANCE), "size": 7 if turned else 4, "opacity": 0.9 if turned else 0.45},
        hovertemplate="%{text}: %{x:.3g} before, %{y:.3g} after<br>z = %{customdata[0]:.1f}, q = %{customdata[1]:.2g}"
        f"<extra>{name}</extra>",
    )
