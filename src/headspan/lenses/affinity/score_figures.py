"""The scores of all pairs, drawn: every pair at once, one score against the other, and how well classes are found.

A real model has thousands of pairs per pairing. Against each other, all of them are drawn as counts per cell, and only
the strongest ones as points that can be named. Thousands of single points would need WebGL, of which a browser lends a
page only a few contexts, and which the page's own rules do not allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import PAIR_DIMS
from headspan.errors import one_line
from headspan.labels import head_labels
from headspan.lenses.affinity.class_detection import ANY, class_curves
from headspan.lenses.affinity.figure_layout import expected_score, shown_metrics, shown_pairings
from headspan.lenses.affinity.schema import COMPOSITION, KERNEL, LONG_NAMES, METRICS
from headspan.lenses.affinity.wiring import edges
from headspan.lenses.wiring_layout import COLUMNS, pairing_name, panels
from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, CHANCE, ORANGE, SEQUENTIAL, VERMILION, styled

MOST_HEADS = 500
"""With more heads than this on a side, a cell is the strongest pair of two layers."""
MOST_TICKS = 8
SATURATION = 0.995
"""Share of cells within the color scale: a few very strong pairs would leave all others dark."""
ALL_POINTS = 1500
"""Up to this many pairs every pair is drawn as a point."""
STRONGEST_POINTS = 150
"""Of more pairs, so many by each score."""
CELLS = 80
CLOUD = [[0.0, "rgba(128, 138, 148, 0.18)"], [1.0, "rgba(128, 138, 148, 0.95)"]]
STANDING = {
    "rest": ("other pairs", CHANCE, "circle-open"),
    KERNEL: ("top by projection kernel only", BLUE, "triangle-right"),
    COMPOSITION: ("top by composition score only", ORANGE, "triangle-up"),
    "both": ("top by both", VERMILION, "circle"),
}
"""Name, color and symbol of a pair that is among the strongest by neither score, by one, or by both."""
NAMED = 24
"""Longer names of classes are cut in the legend."""


def affinity_matrices(result: Result, metric: str | None = None) -> go.Figure:
    """Score of every source head with every destination head; pairs that cannot compose stay blank."""
    metric = metric or shown_metrics(result)[0]
    nodes = {pairing: result.grid(pairing) for pairing in shown_pairings(result)}
    by_head = all(node.sizes["src_layer"] * node.sizes["src_head"] <= MOST_HEADS for node in nodes.values())
    figure, where = panels([pairing_name(pairing) for pairing in nodes], horizontal_spacing=0.05)
    shown = []
    for place, (pairing, node) in zip(where, nodes.items(), strict=True):
        scores = node[metric].transpose(*PAIR_DIMS)
        shown.append(scores if by_head else _strongest(scores))
        figure.add_trace(_matrix(shown[-1], pairing, node.attrs), *place)
        _add_layer_ticks(figure, shown[-1], place)
    figure.update_xaxes(title_text="layer that reads", showgrid=False, zeroline=False, tickangle=0)
    figure.update_yaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="layer that writes", col=1)
    figure.update_layout(coloraxis=_color_scale(shown, expected_score(result, next(iter(nodes)), metric)[0], by_head))
    unit = "pair of heads" if by_head else "pair of layers (its strongest heads)"
    title = f"{LONG_NAMES[metric].capitalize()} of every {unit} that can compose"
    return styled(figure, title, 110 + 270 * where[-1][0])


def _strongest(scores: xr.DataArray) -> xr.DataArray:
    """One head per layer, standing for the layer's best."""
    return scores.max(["src_head", "dst_head"], keepdims=True)


def _matrix(scores: xr.DataArray, pairing: str, kv: Mapping[str, Any]) -> go.Heatmap:
    sides = []
    for side in ("src", "dst"):
        layers, n_heads = scores[f"{side}_layer"].values, scores.sizes[f"{side}_head"]
        labels = head_labels(
            np.repeat(layers, n_heads), np.tile(np.arange(n_heads), len(layers)), bool(kv[f"{side}_kv"])
        )
        sides.append(list(labels) if n_heads > 1 else [f"layer {layer}" for layer in layers])
    return go.Heatmap(
        x=sides[1],
        y=sides[0],
        z=scores.values.reshape(len(sides[0]), len(sides[1])).astype("float32"),
        coloraxis="coloraxis",
        meta={"pairing": pairing},
        hoverongaps=False,
        hovertemplate="%{y} → %{x}: %{z:.4g}<extra></extra>",
    )


def _add_layer_ticks(figure: go.Figure, scores: xr.DataArray, place: tuple[int, int]) -> None:
    """A tick at the middle of every layer, or of every second, third, ... where they would touch.

    The axes leave out the last layer as a source and the first as a destination, which have no pairs.
    """
    for side, update in (("src", figure.update_yaxes), ("dst", figure.update_xaxes)):
        layers, width = scores[f"{side}_layer"].values, scores.sizes[f"{side}_head"]
        step = -(-len(layers) // MOST_TICKS)
        ticks = range(0, len(layers), step)
        update(
            tickvals=[width * tick + (width - 1) / 2 for tick in ticks],
            ticktext=[str(layers[tick]) for tick in ticks],
            range=[-0.5 + (side == "dst") * width, -0.5 + (len(layers) - (side == "src")) * width],
            row=place[0],
            col=place[1],
        )


def _color_scale(shown: Sequence[xr.DataArray], expected: float, by_head: bool) -> dict[str, object]:
    """One sequential scale over all panels. Its bar names the expected score, and its top, which a few cells exceed."""
    word = "expected" if by_head else "expected<br>of one pair"
    low = min(expected, *(float(scores.min()) for scores in shown))
    high = max(expected, *(float(scores.quantile(SATURATION, method="lower")) for scores in shown))
    exceeded = any(float(scores.max()) > high for scores in shown)
    names = {low: f"{low:.3g}", high: f"{high:.3g}{'+' if exceeded else ''}", expected: f"{expected:.3g} {word}"}
    named = [value for value in names if value == expected or abs(value - expected) > 0.07 * (high - low)]
    bar = {"tickvals": named, "ticktext": [names[value] for value in named]}
    return {"colorscale": SEQUENTIAL, "cmin": low, "cmax": high, "colorbar": bar}


def kernel_against_score(result: Result, percent: float = 3.0) -> go.Figure:
    """The two scores of every composing pair, with the cut-offs that leave `percent` of the pairs at or above them."""
    pairings = shown_pairings(result)
    figure, where = panels([pairing_name(pairing) for pairing in pairings], shared_yaxes=True, horizontal_spacing=0.03)
    named: set[str] = set()
    for place, pairing in enumerate(pairings):
        ranked = {metric: edges(result, pairing, metric) for metric in METRICS}
        count = max(1, round(len(ranked[KERNEL]) * percent / 100))
        pairs = both_scores(ranked, count)
        if len(pairs) > ALL_POINTS:
            figure.add_trace(_cloud(pairs, pairing), *where[place])
            pairs = pairs[
                (pairs["standing"] != "rest") & (pairs[["kernel_rank", "score_rank"]].min(axis=1) <= STRONGEST_POINTS)
            ]
        for standing, chosen in pairs.groupby("standing", sort=False):
            figure.add_trace(_points(chosen, pairing, str(standing), standing not in named), *where[place])
            named.add(str(standing))
        cuts = {metric: float(table["score"].quantile(1 - percent / 100)) for metric, table in ranked.items()}
        _add_cut_offs(figure, cuts, where[place])
    figure.update_xaxes(title_text="projection kernel", type="log", tickvals=_ticks(result, KERNEL))
    figure.update_yaxes(type="log", tickvals=_ticks(result, COMPOSITION))
    figure.update_yaxes(title_text="composition score", col=1)
    figure.update_layout(hovermode="closest", legend={"y": -0.24, "traceorder": "normal"})
    return styled(figure, f"Two scores of the same pairs; dotted lines cut off the top {percent:g} %", 450)


def _ticks(result: Result, metric: str) -> list[float]:
    """Round numbers for a logarithmic axis: more of them where the scores span less than a decade."""
    scores = [result[pairing][metric] for pairing in shown_pairings(result)]
    narrow = max(float(part.max()) for part in scores) < 10 * min(float(part.min()) for part in scores)
    digits = ("1", "1.5", "2", "3", "5", "7") if narrow else ("1", "2", "5")
    return [float(f"{digit}e{power}") for power in range(-6, 5) for digit in digits]


def both_scores(ranked: Mapping[str, pd.DataFrame], count: int) -> pd.DataFrame:
    """One row per pair: `kernel`, `score`, its rank by each, and its standing among the strongest `count`."""
    kernel, score = (
        ranked[metric][["src", "dst", "score"]]
        .rename(columns={"score": name})
        .assign(**{f"{name}_rank": np.arange(1, len(ranked[metric]) + 1)})
        for metric, name in ((KERNEL, "kernel"), (COMPOSITION, "score"))
    )
    pairs = kernel.merge(score, on=["src", "dst"])
    by_kernel, by_score = pairs["kernel_rank"] <= count, pairs["score_rank"] <= count
    pairs["standing"] = np.select([by_kernel & by_score, by_kernel, by_score], ["both", KERNEL, COMPOSITION], "rest")
    return pairs


def _cloud(pairs: pd.DataFrame, pairing: str) -> go.Heatmap:
    """Number of pairs per cell, shaded by its logarithm; empty cells stay blank."""
    x, y = (np.geomspace(pairs[name].min(), pairs[name].max(), CELLS + 1) for name in ("kernel", "score"))
    counts = np.histogram2d(pairs["kernel"], pairs["score"], bins=(x, y))[0]
    shade = np.log(counts, where=counts > 0, out=np.full_like(counts, np.nan))
    return go.Heatmap(
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        z=shade.T.astype(np.float32),
        customdata=counts.T.astype(np.int32),
        colorscale=CLOUD,
        showscale=False,
        meta={"pairing": pairing},
        hoverongaps=False,
        hovertemplate="%{customdata} pairs near %{x:.3g}, %{y:.3g}<extra></extra>",
    )


def _points(pairs: pd.DataFrame, pairing: str, standing: str, named: bool) -> go.Scatter:
    name, color, symbol = STANDING[standing]
    return go.Scatter(
        x=pairs["kernel"].to_numpy(np.float32),
        y=pairs["score"].to_numpy(np.float32),
        text=[f"{src} → {dst}" for src, dst in zip(pairs["src"], pairs["dst"], strict=True)],
        customdata=pairs[["kernel_rank", "score_rank"]].to_numpy(np.int32),
        mode="markers",
        marker={"symbol": symbol, "color": color, "size": 6, "opacity": 0.8},
        name=name,
        legendgroup=standing,
        legendrank=1000 + list(STANDING)[::-1].index(standing),
        showlegend=named,
        meta={"pairing": pairing},
        hovertemplate=f"<b>%{{text}}</b> ({pairing})<br>projection kernel %{{x:.4g}}, number %{{customdata[0]}}"
        "<br>composition score %{y:.4g}, number %{customdata[1]}<extra></extra>",
    )


def _add_cut_offs(figure: go.Figure, cuts: Mapping[str, float], where: tuple[int, int]) -> None:
    """Both cut-offs as dotted lines with their values at the panel's upper and left edge."""
    place = {"row": where[0], "col": where[1]}
    line = {"color": CHANCE, "dash": "dot", "width": 1.5}
    figure.add_vline(cuts[KERNEL], line=line, **place)
    figure.add_hline(cuts[COMPOSITION], line=line, **place)
    axis = "" if where == (1, 1) else str((where[0] - 1) * COLUMNS + where[1])
    # On a logarithmic axis annotations, unlike lines, are placed by exponent.
    at_top = {"x": math.log10(cuts[KERNEL]), "xref": f"x{axis}", "y": 1, "yref": f"y{axis} domain"}
    at_edge = {"y": math.log10(cuts[COMPOSITION]), "yref": f"y{axis}", "x": 0, "xref": f"x{axis} domain"}
    figure.add_annotation(text=f"{cuts[KERNEL]:.3g}", xanchor="right", yanchor="top", showarrow=False, **at_top)
    figure.add_annotation(text=f"{cuts[COMPOSITION]:.2g}", xanchor="left", yanchor="top", showarrow=False, **at_edge)


def precision_recall(result: Result, classes: Mapping[str, str], aggregate: str = "largest") -> go.Figure | None:
    """One panel per score, one line per class; dotted at the share of heads in any. None without a curve."""
    curves = class_curves(result, classes, aggregate)
    metrics = [metric for metric in shown_metrics(result) if any(curve.metric == metric for curve in curves)]
    if not metrics:
        return None
    figure = make_subplots(
        1, len(metrics), subplot_titles=[LONG_NAMES[metric] for metric in metrics], shared_yaxes=True
    )
    targets = list(dict.fromkeys(curve.target for curve in curves))
    for curve in curves:
        place = targets.index(curve.target)
        name = escape(one_line(curve.target))[:NAMED]
        line = {"color": CATEGORIES[place % len(CATEGORIES)], "width": 3 if curve.target == ANY else 1.8, "shape": "hv"}
        trace = go.Scatter(x=curve.recall, y=curve.precision, mode="lines", line=line, name=name, legendgroup=name)
        trace.update(
            showlegend=curve.metric == metrics[0],
            hovertemplate=f"recall %{{x:.2f}}, precision %{{y:.2f}}<extra>{name}: average precision "
            f"{curve.average_precision:.2f}, base rate {curve.base_rate:.2f}</extra>",
        )
        figure.add_trace(trace, 1, metrics.index(curve.metric) + 1)
        if curve.target == ANY:
            column = metrics.index(curve.metric) + 1
            figure.add_hline(
                curve.base_rate, line={"color": line["color"], "dash": "dot", "width": 1}, row=1, col=column
            )
    figure.update_xaxes(title_text="recall", range=[0, 1.02])
    figure.update_yaxes(range=[0, 1.04])
    figure.update_yaxes(title_text="precision", col=1)
    figure.update_layout(legend_y=-0.2)
    large = "large mean affinity" if aggregate == "mean" else "large affinity"
    return styled(figure, f"Do heads with a {large} belong to the classes? Dotted: base rate", 440)
