"""Projection kernel against composition score, pair by pair.

A real model has thousands of pairs per pairing. All of them are drawn as counts per cell, and only the strongest ones
as points that can be named. Thousands of single points would need WebGL, of which a browser lends a page only a few
contexts, and which the page's own rules do not allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import xarray as xr

from headspan.dims import PAIR_DIMS
from headspan.lenses.affinity import VARIABLES
from headspan.lenses.affinity.edges import edges, pairing_node
from headspan.lenses.affinity.pairing_figures import COLUMNS, METRIC_NAMES, pairing_name, panels, shown_pairings
from headspan.theme import BLUE, CHANCE, ORANGE, VERMILION, styled

ALL_POINTS = 1500
"""Up to this many pairs every pair is drawn as a point."""
STRONGEST_POINTS = 300
"""Of more pairs, so many by each score."""
CELLS = 80
CLOUD = [[0.0, "rgba(128, 138, 148, 0.18)"], [1.0, "rgba(128, 138, 148, 0.95)"]]
STANDING = {
    "rest": ("other pairs", CHANCE, "circle-open"),
    "pk": ("top by projection kernel only", BLUE, "triangle-right"),
    "cs": ("top by composition score only", ORANGE, "triangle-up"),
    "both": ("top by both", VERMILION, "circle"),
}
"""Name, colour and symbol of a pair that is among the strongest by neither score, by one, or by both."""


def kernel_against_score(result: xr.DataTree, percent: float = 3.0) -> go.Figure:
    """The two scores of every composing pair, with the cut-offs that leave `percent` of the pairs at or above them."""
    pairings = shown_pairings(result)
    figure, where = panels([pairing_name(pairing) for pairing in pairings], shared_yaxes=True, horizontal_spacing=0.03)
    named: set[str] = set()
    for place, pairing in enumerate(pairings):
        ranked = {metric: edges(result, pairing, metric) for metric in METRIC_NAMES}
        count = max(1, round(len(ranked["pk"]) * percent / 100))
        pairs = both_scores(ranked, count)
        if len(pairs) > ALL_POINTS:
            figure.add_trace(_cloud(pairs, pairing), *where[place])
            pairs = pairs[
                (pairs["standing"] != "rest") & (pairs[["rank_pk", "rank_cs"]].min(axis=1) <= STRONGEST_POINTS)
            ]
        for standing, chosen in pairs.groupby("standing", sort=False):
            figure.add_trace(_points(chosen, pairing, str(standing), standing not in named), *where[place])
            named.add(str(standing))
        cuts = {metric: float(table["score"].quantile(1 - percent / 100)) for metric, table in ranked.items()}
        _add_cut_offs(figure, cuts, where[place])
    figure.update_xaxes(title_text="projection kernel", type="log", tickvals=_ticks(result, "pk"))
    figure.update_yaxes(type="log", tickvals=_ticks(result, "cs"))
    figure.update_yaxes(title_text="composition score", col=1)
    figure.update_layout(hovermode="closest", legend={"y": -0.24, "traceorder": "normal"})
    return styled(figure, f"Two scores of the same pairs; dotted lines cut off the top {percent:g} %", 450)


def _ticks(result: xr.DataTree, metric: str) -> list[float]:
    """Round numbers for a logarithmic axis: more of them where the scores span less than a decade."""
    scores = [pairing_node(result, pairing)[VARIABLES[metric][0]] for pairing in shown_pairings(result)]
    narrow = max(float(part.max()) for part in scores) < 10 * min(float(part.min()) for part in scores)
    digits = ("1", "1.5", "2", "3", "5", "7") if narrow else ("1", "2", "5")
    return [float(f"{digit}e{power}") for power in range(-6, 5) for digit in digits]


def both_scores(ranked: Mapping[str, pd.DataFrame], count: int) -> pd.DataFrame:
    """One row per pair: `score_pk`, `score_cs`, its rank by each, and its standing among the strongest `count`."""
    pk, cs = (table.assign(rank=np.arange(1, len(table) + 1)) for table in (ranked["pk"], ranked["cs"]))
    same = list(PAIR_DIMS)
    pairs = pk[["src", "dst", *same, "score", "rank"]].merge(
        cs[[*same, "score", "rank"]], on=same, suffixes=("_pk", "_cs")
    )
    by_pk, by_cs = pairs["rank_pk"] <= count, pairs["rank_cs"] <= count
    pairs["standing"] = np.select([by_pk & by_cs, by_pk, by_cs], ["both", "pk", "cs"], "rest")
    return pairs


def _cloud(pairs: pd.DataFrame, pairing: str) -> go.Heatmap:
    """Number of pairs per cell, shaded by its logarithm; empty cells stay blank."""
    x, y = (np.geomspace(pairs[name].min(), pairs[name].max(), CELLS + 1) for name in ("score_pk", "score_cs"))
    counts = np.histogram2d(pairs["score_pk"], pairs["score_cs"], bins=(x, y))[0]
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
    name, colour, symbol = STANDING[standing]
    return go.Scatter(
        x=pairs["score_pk"].to_numpy(np.float32),
        y=pairs["score_cs"].to_numpy(np.float32),
        text=[f"{src} → {dst}" for src, dst in zip(pairs["src"], pairs["dst"], strict=True)],
        customdata=pairs[["rank_pk", "rank_cs"]].to_numpy(np.int32),
        mode="markers",
        marker={"symbol": symbol, "color": colour, "size": 6, "opacity": 0.8},
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
    figure.add_vline(cuts["pk"], line=line, **place)
    figure.add_hline(cuts["cs"], line=line, **place)
    axis = "" if where == (1, 1) else str((where[0] - 1) * COLUMNS + where[1])
    # On a logarithmic axis annotations, unlike lines, are placed by exponent.
    at_top = {"x": math.log10(cuts["pk"]), "xref": f"x{axis}", "y": 1, "yref": f"y{axis} domain"}
    at_edge = {"y": math.log10(cuts["cs"]), "yref": f"y{axis}", "x": 0, "xref": f"x{axis} domain"}
    figure.add_annotation(text=f"{cuts['pk']:.3g}", xanchor="right", yanchor="top", showarrow=False, **at_top)
    figure.add_annotation(text=f"{cuts['cs']:.2g}", xanchor="left", yanchor="top", showarrow=False, **at_edge)
