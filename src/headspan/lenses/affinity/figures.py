"""Head affinity, drawn: who writes to whom, both scores against each other, all pairs, chance, and hubs.

Scores, ranks and chance come from the lens; what is done here is layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import xarray as xr

from headspan.dims import COMPOSING
from headspan.lenses.affinity import VARIABLES
from headspan.lenses.affinity.class_curve_figure import precision_recall
from headspan.lenses.affinity.edges import is_sketched, pairing_node
from headspan.lenses.affinity.hubs import hub_scores, ranked_hubs
from headspan.lenses.affinity.pair_matrices import affinity_matrices
from headspan.lenses.affinity.pairing_figures import (
    METRIC_NAMES,
    chance_of,
    pairing_colour,
    pairing_name,
    panels,
    shown_metrics,
    shown_pairings,
)
from headspan.lenses.affinity.two_scores import kernel_against_score
from headspan.lenses.affinity.wiring_classes import class_text
from headspan.lenses.affinity.wiring_diagram import wiring_diagram
from headspan.theme import BLUE, CHANCE, ORANGE, PURPLE, styled

BINS = 80

__all__ = [
    "affinity_matrices",
    "figures",
    "hub_ranking",
    "kernel_against_score",
    "score_distributions",
    "wiring_diagram",
]


def figures(result: xr.DataTree, classes: Mapping[str, str] | None = None) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for.

    Parameters
    ----------
    result
        An affinity result.
    classes
        Head label -> class, to colour heads by.
    """
    drawn = {
        "Wiring diagram": wiring_diagram(result, classes),
        "Wiring around an ellipse": wiring_diagram(result, classes, layout="ellipse"),
    }
    if len(shown_metrics(result)) == 2:
        drawn["Kernel against composition score"] = kernel_against_score(result)
    # A sketch has no table of all pairs to draw.
    if not is_sketched(result):
        drawn["All pairs"] = affinity_matrices(result)
        drawn["Scores beside chance"] = score_distributions(result)
    if len(_hubs(result, 1)):
        drawn["Hubs"] = hub_ranking(result, classes)
    curves = precision_recall(result, classes) if classes else None
    if curves is not None:
        drawn["Classes found by affinity"] = curves
    return drawn


def score_distributions(result: xr.DataTree, metric: str | None = None) -> go.Figure:
    """How scores spread, beside pairs in the impossible order and beside subspaces in general position."""
    metric, pairings = metric or shown_metrics(result)[0], shown_pairings(result)
    figure, where = panels([pairing_name(pairing) for pairing in pairings], shared_yaxes=True, horizontal_spacing=0.03)
    for place, pairing in zip(where, pairings, strict=True):
        for trace in _distribution(pairing_node(result, pairing), pairing, metric):
            trace.meta = {"pairing": pairing} | ({"counts": metric} if trace.legendgroup == "composing" else {})
            trace.showlegend = trace.legendgroup != "composing" and place == (1, 1)
            figure.add_trace(trace, *place)
    figure.update_xaxes(title_text=METRIC_NAMES[metric], zeroline=False)
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    figure.update_yaxes(title_text="density of pairs", col=1)
    figure.update_layout(legend={"y": -0.24})
    return styled(figure, "Pairs that compose (filled), beside two kinds of chance", 90 + 320 * where[-1][0])


def _distribution(node: xr.Dataset, pairing: str, metric: str) -> list[go.Bar | go.Scatter]:
    """Composing pairs as bars, the impossible order as an outline, the chance law as a line."""
    forward, backward = (_known(node[name]) for name in VARIABLES[metric])
    cells = np.histogram_bin_edges(np.concatenate([forward, backward]), bins=min(BINS, 8 + forward.size // 20))
    middles = ((cells[1:] + cells[:-1]) / 2).astype(np.float32)
    mean, spread = chance_of(node, metric)
    bars = go.Bar(
        x=middles,
        y=_density(forward, cells),
        width=float(cells[1] - cells[0]),
        name="pairs that compose",
        legendgroup="composing",
        marker={"color": pairing_colour(pairing), "opacity": 0.55, "line": {"width": 0}},
        hovertemplate="%{x:.3g}: density %{y:.2g}<extra>compose</extra>",
    )
    outline = go.Scatter(
        x=middles,
        y=_density(backward, cells),
        mode="lines",
        line={"color": PURPLE, "width": 1.8, "shape": "hvh"},
        name="the same model, impossible order (later layer to earlier)",
        legendgroup="anticausal",
        hovertemplate="%{x:.3g}: density %{y:.2g}<extra>impossible order</extra>",
    )
    return [bars, outline, _chance_law(mean, spread, bars.y)]


def _chance_law(mean: float, spread: float, heights: np.ndarray) -> go.Scatter:
    """The density of random subspaces; spaces that fill the stream have one value, and get an upright line."""
    x, y = np.full(2, mean), np.array([np.nanmin(heights) / 10, np.nanmax(heights)])
    if spread > 0:
        x = np.linspace(mean - 4 * spread, mean + 4 * spread, 81)
        y = np.array([NormalDist(mean, spread).pdf(point) for point in x])
    return go.Scatter(
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        mode="lines",
        line={"color": CHANCE, "width": 2.5},
        name="random subspaces",
        legendgroup="haar",
        hovertemplate=f"random subspaces: {mean:.4g} ± {spread:.2g}<extra></extra>",
    )


def _known(scores: xr.DataArray) -> np.ndarray:
    values: np.ndarray = scores.values[~np.isnan(scores.values)]
    return values


def _density(values: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Density per cell; NaN where it is empty, which a logarithmic axis leaves out."""
    heights = np.histogram(values, bins=cells, density=True)[0] if values.size else np.zeros(len(cells) - 1)
    density: np.ndarray = np.where(heights > 0, heights, np.nan).astype(np.float32)
    return density


def _hubs(result: xr.DataTree, count: int) -> pd.DataFrame:
    """The strongest hubs, best first; none where no head has layers before and after it, or none beats chance."""
    if not set(shown_pairings(result)) <= set(COMPOSING):
        return pd.DataFrame()
    table = ranked_hubs(hub_scores(result, metric=shown_metrics(result)[0]))
    return table[table["score"] > 0].head(count)


def hub_ranking(result: xr.DataTree, classes: Mapping[str, str] | None = None, count: int = 15) -> go.Figure:
    """The strongest hubs: how far above chance a head is reached (inlet) and reaches (outlet), on average."""
    metric = shown_metrics(result)[0]
    table = _hubs(result, count)[::-1]
    named = {label: f"{label} ({class_text(name)})" for label, name in (classes or {}).items()}
    labels = [named.get(label, label) for label in table["head"]]
    figure = go.Figure()
    for side, name, colour in (
        ("outlet", "outlet: writes to later heads", ORANGE),
        ("inlet", "inlet: reads earlier heads", BLUE),
    ):
        bars = go.Bar(
            x=table[side].to_numpy(np.float32),
            y=labels,
            orientation="h",
            name=name,
            marker_color=colour,
            customdata=table["score"].to_numpy(np.float32),
            meta={"side": side},
            hovertemplate=f"%{{y}}: {side} %{{x:.3g}}, hub score %{{customdata:.3g}}<extra></extra>",
        )
        figure.add_trace(bars)
    figure.update_xaxes(title_text=f"mean {METRIC_NAMES[metric]} above chance")
    figure.update_yaxes(showgrid=False)
    figure.update_layout(barmode="group", bargap=0.3, legend={"traceorder": "reversed", "y": 1, "yanchor": "bottom"})
    figure.update_layout(meta={"hubs": {"metric": metric, "names": named, "count": count}})
    return styled(figure, "Hubs: heads that many heads reach and that reach many", 150 + 26 * max(len(table), 4))
