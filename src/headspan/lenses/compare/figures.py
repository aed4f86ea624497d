"""Two checkpoints side by side, drawn: the drift, edges gained and lost, kernels and spectra before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from headspan.dims import HeadLabel
from headspan.lenses.compare.change_figures import change_figures
from headspan.lenses.compare.parts import drift_part, edge_changes, wiring_pairings
from headspan.lenses.wiring_layout import Place, arrow_curve, bow_curve, grid_places, group_ties, pairing_name, panels
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, GREY, LINE, ORANGE, SKY, VERMILION, point_trace, styled

COLORS = {"gained": BLUE, "strengthened": SKY, "lost": VERMILION, "weakened": ORANGE}
DASHES = {"OQ": "solid", "OK": "dash", "OV": "dot"}
BOWS = {"OQ": -0.09, "OK": 0.05, "OV": 0.13}
TOP, DOT, WIDTH = 20, 13, 800
MOST_POINTS = 4000
"""Pairs drawn that did not turn over, and how many are drawn as SVG; more are drawn by the graphics card."""
LAYERED = ("W_Q", "W_K", "W_V", "W_O", "W_gate", "W_in", "W_out")
MEANT = {"before": CHANCE, "after": BLUE}


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures of a comparison; equal checkpoints have the drift's only."""
    drawn = dict(drift_part(result).figures)
    if int(result.attrs["identical"]):
        return drawn
    if wiring_pairings(result) and result.attrs["d_head"] < result.attrs["d_model"]:
        if len(turned_edges(result)):
            drawn["Edges gained and lost"] = rewiring_diagram(result)
        drawn["Kernels before and after"] = kernel_scatter(result)
    drawn |= change_figures(result)
    drawn["Spectra of matrices, layer by layer"] = layer_spectra(result)
    return drawn


def _layers(result: Result) -> list[int]:
    return [int(layer) for layer in np.unique(result["drift/Q"]["head_layer"].values)]


def layer_spectra(result: Result) -> go.Figure:
    """Effective rank of every whole matrix over layers, before and after, with that of a random matrix."""
    kinds = [kind for kind in LAYERED if kind in result["spectra"].children]
    figure, places = panels([f"W<sub>{kind.removeprefix('W_')}</sub>" for kind in kinds], vertical_spacing=0.14)
    for kind, place in zip(kinds, places, strict=True):
        node = result.dataset(f"spectra/{kind}")
        lines = {name: node[f"effective_rank_{name}"] for name in ("before", "after", "null")}
        for name, values in lines.items():
            null = name == "null"
            line = go.Scatter(
                x=node["layer"].values,
                y=values.broadcast_like(lines["before"]).values,
                mode="lines" if null else "lines+markers",
                line={
                    "color": MEANT.get(name, CHANCE),
                    "width": 1.5 if null else 2,
                    "dash": "dot" if null else "solid",
                },
                name="a random matrix" if null else name,
                legendgroup=name,
                showlegend=place == places[0],
                hovertemplate=f"layer %{{x}}, {name}: %{{y:.1f}}<extra></extra>",
            )
            figure.add_trace(line, *place)
    figure.update_xaxes(dtick=max(1, len(_layers(result)) // 6), title_text="layer", title_standoff=2)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="effective rank", col=1)
    return styled(figure, "Effective rank of every matrix, before and after", 120 + 230 * places[-1][0])


def turned_edges(result: Result, top: int = TOP) -> pd.DataFrame:
    """The `top` largest changes of each kind and pairing: edges gained, lost, and kept but changed beyond the null."""
    parts = []
    for _, table in _changes(result).groupby("pairing", sort=False):
        parts += [table[table["status"] == status][:top] for status in COLORS]
    return pd.concat(parts, ignore_index=True)


def _changes(result: Result) -> pd.DataFrame:
    """All pairs, those kept as edges and changed beyond the null as strengthened or weakened."""
    table = edge_changes(result)
    moved = (table["status"] == "kept") & (table["change_q"] < float(result.attrs["level"]))
    rose = table["change"] > table["change_null"]
    return table.assign(status=table["status"].mask(moved & rose, "strengthened").mask(moved & ~rose, "weakened"))


def rewiring_diagram(result: Result, top: int = TOP) -> go.Figure:
    """Arrows from writer to reader for edges that turned; faint where a random change explains them."""
    table, level = turned_edges(result, top), float(result.attrs["level"])
    layers = _layers(result)
    n_heads, n_kv_heads = int(result.attrs["n_heads"]), int(result.attrs["n_kv_heads"])
    places = grid_places(layers, n_heads, n_kv_heads)
    height = min(1500, 190 + max(320, (54 if n_kv_heads == n_heads else 92) * len(layers)))
    figure = go.Figure()
    xs, ys = group_ties(places, n_heads, n_kv_heads)
    if xs:
        ties = {"color": LINE, "width": 1}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=ties, hoverinfo="skip", showlegend=False)
    pixels = (WIDTH / n_heads, (height - 190) / max(1, len(layers)))
    for status, pairing in ((status, pairing) for status in COLORS for pairing in wiring_pairings(result)):
        chosen = table[(table["status"] == status) & (table["pairing"] == pairing)]
        line = {"color": COLORS[status], "dash": DASHES.get(pairing, "solid"), "width": 2.5}
        name = f"{status}, {pairing_name(pairing)}"
        if len(chosen):
            figure.add_scatter(x=[None], y=[None], mode="lines", line=line, name=name, legendgroup=name)
        figure.add_traces([_arrow(row, places, pixels, line, name, level) for row in chosen.to_dict("records")])
    figure.add_trace(_dots(places, table))
    figure.update_xaxes(title_text="head", range=[-0.6, n_heads - 0.4], zeroline=False, showgrid=False)
    figure.update_xaxes(tickvals=list(range(0, n_heads, 1 + n_heads // 24)))
    figure.update_yaxes(
        title_text="layer", tickvals=list(range(len(layers))), ticktext=[str(layer) for layer in layers]
    )
    figure.update_yaxes(range=[-0.75, len(layers) - 0.5], zeroline=False)
    figure.update_layout(hovermode="closest", legend={"y": 1.0, "yanchor": "bottom"})
    return styled(figure, f"Edges gained and lost, and those that changed significantly; up to {top} of each", height)


def _arrow(
    edge: Mapping[str, Any],
    places: Mapping[str, Place],
    pixels: Place,
    line: dict[str, Any],
    name: str,
    level: float,
) -> go.Scatter:
    curve = bow_curve(places[edge["src"]], places[edge["dst"]], BOWS.get(edge["pairing"], 0.0))
    curve = arrow_curve(curve, pixels, DOT / 2, 9.0)
    certain = edge["change_q"] < level
    text = (
        f"<b>{edge['src']} → {edge['dst']}</b> ({edge['pairing']}), {edge['status']}<br>"
        f"kernel {edge['kernel_before']:.3g} before, {edge['kernel_after']:.3g} after; a random change: "
        f"{edge['change_null']:+.2g} (z = {edge['change_z']:.1f}, q = {edge['change_q']:.2g})"
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


def kernel_scatter(result: Result) -> go.Figure:
    """Every composing pair: its projection kernel before and after, edges that turned colored."""
    pairings = wiring_pairings(result)
    figure, where = panels([pairing_name(pairing) for pairing in pairings], horizontal_spacing=0.06)
    named: set[str] = set()
    changes = _changes(result)
    for pairing, place in zip(pairings, where, strict=True):
        table = changes[changes["pairing"] == pairing]
        kernels = table[["kernel_before", "kernel_after"]].to_numpy()
        limits = [float(kernels.min()), float(kernels.max())]
        line = {"color": LINE, "width": 1.5}
        diagonal = go.Scatter(x=limits, y=limits, mode="lines", line=line, hoverinfo="skip", showlegend=False)
        figure.add_trace(diagonal, *place)
        groups = {"neither": table[~table["status"].isin(list(COLORS))][:MOST_POINTS]}
        groups |= {status: table[table["status"] == status] for status in COLORS}
        for name, rows in groups.items():
            # An entry of the legend belongs to the first panel that has such points.
            figure.add_trace(_points(name, rows, shown=bool(len(rows)) and name not in named), *place)
            named |= {name} if len(rows) else set()
    figure.update_xaxes(title_text="kernel before")
    figure.update_yaxes(title_text="kernel after", col=1)
    return styled(figure, "Projection kernels before and after", 440)


def _points(name: str, rows: pd.DataFrame, shown: bool) -> go.Scatter | go.Scattergl:
    turned = name in COLORS
    return point_trace(len(rows))(
        x=rows["kernel_before"],
        y=rows["kernel_after"],
        text=rows["src"] + " → " + rows["dst"],
        customdata=rows[["change_z", "change_q"]].to_numpy(),
        mode="markers",
        name=name,
        legendgroup=name,
        showlegend=shown,
        marker={"color": COLORS.get(name, CHANCE), "size": 7 if turned else 4, "opacity": 0.9 if turned else 0.45},
        hovertemplate="%{text}: %{x:.3g} before, %{y:.3g} after<br>z = %{customdata[0]:.1f}, q = %{customdata[1]:.2g}"
        f"<extra>{name}</extra>",
    )
