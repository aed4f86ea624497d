"""The whole wiring, drawn: a diagram of all parts, heads against their layers, and heat maps by layer.

Shares, nulls and tiers come from the result; what is done here is layout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headspan.lenses.graph import BACKGROUND, UNKNOWN
from headspan.lenses.wiring.diagram_figure import wiring_diagram
from headspan.lenses.wiring.graph import NEURON_SIDES, edges, ends, relations
from headspan.lenses.wiring.schema import ROTATION
from headspan.lenses.wiring_layout import ROLE_NAMES, panels
from headspan.result import Result
from headspan.theme import BLUE, DIVERGING, GREEN, GREY, ORANGE, PURPLE, VERMILION, point_trace, styled

DIAGRAM, HEADS, LAYERS, BETWEEN, NEURONS = (
    "Wiring diagram",
    "Heads by layer",
    "Tables and logits by layer",
    "Layer to layer",
    "Neurons",
)
BEHIND = dict.fromkeys((DIAGRAM, HEADS, LAYERS, BETWEEN, NEURONS), "edges")
ROLE_COLORS = {"Q": BLUE, "K": VERMILION, "V": GREEN, "O": ORANGE, "MLP": PURPLE}
SINGLE = ("W_E", "W_pos")
TITLES = {"W_E": "reading the token table", "W_pos": "reading the position table", "logits": "writing to the logits"}
NAMED = 6
"""Heads that are named in each panel."""


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the edges for."""
    if result.attrs["neurons"]:
        return {NEURONS: neuron_figure(result)}
    drawn = {DIAGRAM: wiring_diagram(result)}
    if any(_panel_relations(result, one) for one in (*SINGLE, "logits")):
        drawn[HEADS] = head_figure(result)
    rows = _single_rows(result)
    if rows:
        drawn[LAYERS] = single_heat_map(result, rows)
    if _layered(result):
        drawn[BETWEEN] = layer_heat_maps(result)
    return drawn


def _panel_relations(result: Result, one: str) -> list[str]:
    """Edges of heads with one table, or with the logits."""
    if one == "logits":
        return [name for name in relations(result) if name == "O to logits"]
    return [name for name in relations(result) if ends(name)[0] == one and ends(name)[1] in ("Q", "K", "V")]


def head_figure(result: Result) -> go.Figure:
    """Every head's share of each table and of the logits, by layer; heads that stand out are filled and named."""
    shown = [one for one in (*SINGLE, "logits") if _panel_relations(result, one)]
    figure, where = panels([f"{one}: {TITLES[one]}" for one in shown], horizontal_spacing=0.07)
    for place, one in zip(where, shown, strict=True):
        tables = [edges(result, name) for name in _panel_relations(result, one)]
        for table in tables:
            _add_heads(figure, table, place, "src" if one == "logits" else "dst", one == shown[0] or one == "logits")
        expected = float(np.nanmean(pd.concat(tables)["rotation"]))
        figure.add_hline(y=expected, line={"color": GREY, "dash": "dot", "width": 1.5}, row=place[0], col=place[1])
    figure.update_xaxes(title_text="layer", zeroline=False)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(title_text="share of energy", col=1)
    figure.update_layout(legend={"y": -0.2})
    title = "Heads at the two ends: share of each matrix in a head's subspace (dotted: random rotation)"
    return styled(figure, title, 120 + 340 * where[-1][0])


def _add_heads(figure: go.Figure, table: pd.DataFrame, place: tuple[int, int], side: str, legend: bool) -> None:
    role = ends(table["relation"].iloc[0])[1 if side == "dst" else 0] if len(table) else "Q"
    out = ~table["tier"].isin((BACKGROUND, UNKNOWN)).to_numpy()
    named = out & (table["z"].rank(ascending=False) <= NAMED).to_numpy()
    shift = {"Q": -0.2, "K": 0.0, "V": 0.2}.get(role, 0.0)
    figure.add_trace(
        go.Scatter(
            x=table[f"{side}_layer"] + shift,
            y=table["score"].astype(np.float32),
            mode="markers+text",
            text=[label if use else "" for label, use in zip(table[f"{side}_label"], named, strict=True)],
            textposition="top center",
            textfont={"size": 11},
            marker={
                "color": ROLE_COLORS[role],
                "size": np.where(out, 9, 5),
                "opacity": np.where(out, 1.0, 0.45),
                "line": {"width": np.where(out, 1.2, 0.0), "color": "#1B1F24"},
            },
            customdata=np.stack([table[name] for name in (f"{side}_label", "expected", "q")], axis=1),
            hovertemplate="<b>%{customdata[0]}</b> " + role + ": %{y:.1%}, expected %{customdata[1]:.1%}, "
            "q = %{customdata[2]:.2g}<extra></extra>",
            name=f"{ROLE_NAMES.get(role, role)} space",
            legendgroup=role,
            showlegend=legend,
        ),
        *place,
    )


def _ratio_by(table: pd.DataFrame, *by: str) -> pd.Series:
    """Mean share over the mean that a random rotation gives, by layer."""
    grouped = table.groupby(list(by) if len(by) > 1 else by[0])
    ratio: pd.Series = grouped["score"].mean() / grouped["rotation"].mean()
    return ratio


def _single_rows(result: Result) -> dict[str, pd.Series]:
    """One row per kind of edge that has a single end: its ratio by the layer of the other."""
    rows = {}
    for name in relations(result):
        src, dst = ends(name)
        table = edges(result, name, ROTATION)
        if src in SINGLE and dst != "logits" and len(table):
            rows[f"{src} → {dst}"] = _ratio_by(table, "dst_layer")
        elif dst == "logits" and src not in SINGLE and len(table):
            rows[f"{src} → logits"] = _ratio_by(table, "src_layer")
    return rows


def single_heat_map(result: Result, rows: dict[str, pd.Series]) -> go.Figure:
    """Layers across, one row per kind of edge from a table or to the logits."""
    layers = sorted({int(layer) for row in rows.values() for layer in row.index})
    z = np.array([[row.get(layer, np.nan) for layer in layers] for row in rows.values()])
    figure = go.Figure(_heat_map(z, [str(layer) for layer in layers], list(rows), "layer %{x}, %{y}"))
    figure.update_xaxes(title_text="layer", showgrid=False, type="category")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    _add_scale(figure, [z])
    title = "Who reads the tables and who writes to the logits, by layer (share over that of a random rotation)"
    return styled(figure, title, 150 + 34 * len(rows))


def _layered(result: Result) -> list[str]:
    """Kinds of edges with a layer at both ends."""
    return [name for name in relations(result) if _is_layered(result, name)]


def _is_layered(result: Result, name: str) -> bool:
    src, dst = ends(name)
    return src.endswith(("O", "MLP")) and dst != "logits" and int(result[name]["n_edges"]) > 1


def layer_heat_maps(result: Result) -> go.Figure:
    """A panel per kind of edge: layer that writes against layer that reads."""
    names = _layered(result)
    titles = [" → ".join(re.sub(r"\bO$", "heads", end) for end in ends(name)) for name in names]
    columns = min(4, len(names))
    n_rows = -(-len(names) // columns)
    figure = make_subplots(
        n_rows, columns, subplot_titles=titles, horizontal_spacing=0.05, vertical_spacing=0.2 / n_rows
    )
    found = []
    for place, name in enumerate(names):
        ratio = _ratio_by(edges(result, name, ROTATION), "src_layer", "dst_layer").unstack()
        found.append(ratio.to_numpy())
        labels = [[str(int(layer)) for layer in axis] for axis in (ratio.columns, ratio.index)]
        trace = _heat_map(found[-1], labels[0], labels[1], "layer %{y} to layer %{x}")
        figure.add_trace(trace, place // columns + 1, place % columns + 1)
    figure.update_xaxes(showgrid=False, type="category")
    figure.update_yaxes(showgrid=False, type="category")
    figure.update_xaxes(title_text="layer that reads", row=n_rows)
    figure.update_yaxes(title_text="layer that writes", col=1)
    _add_scale(figure, found)
    title = "Which layers feed which: mean share over that of a random rotation"
    return styled(figure, title, 120 + 290 * n_rows)


def _heat_map(z: np.ndarray, x: Sequence[str], y: Sequence[str], what: str) -> go.Heatmap:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log2(z)
    return go.Heatmap(
        z=logs.astype(np.float32),
        x=x,
        y=y,
        customdata=z.astype(np.float32),
        coloraxis="coloraxis",
        hoverongaps=False,
        hovertemplate=what + ": %{customdata:.2f} times the expected share<extra></extra>",
    )


def _add_scale(figure: go.Figure, found: Sequence[np.ndarray]) -> None:
    """Colors by the logarithm of the ratio, pale at 1, as far as the farthest ratio."""
    values = np.concatenate([np.log2(each[each > 0]) for each in found])
    reach = max(float(np.abs(values).max(initial=0.0)), 0.2)
    ticks = [tick for tick in (0.25, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0) if abs(np.log2(tick)) <= reach]
    figure.update_layout(
        coloraxis={
            "colorscale": DIVERGING,
            "cmin": -reach,
            "cmax": reach,
            "colorbar": {
                "tickvals": [float(np.log2(tick)) for tick in ticks],
                "ticktext": [f"{tick:g} times" for tick in ticks],
            },
        }
    )


def neuron_figure(result: Result) -> go.Figure:
    """Every neuron's share by layer, for each way in which it meets the head; those that stand out are named."""
    names = relations(result)
    figure, where = panels([_neuron_title(result, name) for name in names], horizontal_spacing=0.07)
    for place, name in zip(where, names, strict=True):
        side = "dst" if ends(name)[1] in NEURON_SIDES else "src"
        table = edges(result, name)
        out = ~table["tier"].isin((BACKGROUND, UNKNOWN)).to_numpy()
        named = (table["z"].rank(ascending=False) <= NAMED).to_numpy() & out
        jitter = np.random.default_rng(0).uniform(-0.3, 0.3, len(table))
        trace = point_trace(len(table))(
            x=(table[f"{side}_layer"] + jitter).astype(np.float32),
            y=table["score"].astype(np.float32),
            mode="markers+text",
            text=[label if use else "" for label, use in zip(table[f"{side}_label"], named, strict=True)],
            textposition="top center",
            marker={
                "color": np.where(out, VERMILION, GREY),
                "size": np.where(out, 6, 3),
                "opacity": np.where(out, 0.95, 0.35),
            },
            customdata=np.stack([table[column] for column in (f"{side}_label", "q")], axis=1),
            hovertemplate="<b>%{customdata[0]}</b>: %{y:.1%}, q = %{customdata[1]:.2g}<extra></extra>",
            showlegend=False,
        )
        figure.add_trace(trace, *place)
        expected = float(np.nanmean(table["rotation"]))
        figure.add_hline(y=expected, line={"color": GREY, "dash": "dot", "width": 1.5}, row=place[0], col=place[1])
    figure.update_xaxes(title_text="layer", zeroline=False)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(title_text="share of the neuron's weight", col=1)
    title = (
        f"Neurons and {result.attrs['neurons']}: share of a neuron's weight in the head's subspace (dotted: rotation)"
    )
    return styled(figure, title, 120 + 340 * where[-1][0])


def _neuron_title(result: Result, name: str) -> str:
    dst = ends(name)[1]
    head = result.attrs["neurons"]
    if dst in NEURON_SIDES:
        return f"{head} → {'input' if dst == 'in' else dst} weights"
    return f"output weights → {head} {ROLE_NAMES[dst]}"
