"""Head affinity, drawn: who writes to whom, both scores against each other, all pairs, their nulls, and hubs.

Scores, ranks and nulls come from the result; what is done here is layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import xarray as xr

from headspan.dims import COMPOSING
from headspan.lenses.affinity.figure_layout import (
    class_text,
    expected_score,
    pairing_color,
    shown_metrics,
    shown_pairings,
)
from headspan.lenses.affinity.schema import LONG_NAMES
from headspan.lenses.affinity.score_figures import affinity_matrices, kernel_against_score, precision_recall
from headspan.lenses.affinity.wiring import hub_scores, is_sketched, ranked_hubs
from headspan.lenses.affinity.wiring_figure import wiring_diagram
from headspan.lenses.wiring_layout import pairing_name, panels
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, ORANGE, PURPLE, styled

BINS = 80
WIRING, ELLIPSE, MATRICES, NULLS = "Wiring diagram", "Wiring around an ellipse", "All pairs", "Scores and their nulls"
BEHIND = {
    **dict.fromkeys((WIRING, ELLIPSE, MATRICES, NULLS, "Kernel against composition score"), "pairs"),
    "Hubs": ("hub_score", "hub_rank", "inlet", "outlet"),
}
"""What each figure shows, for the table that a page saves: the pairs, or variables of the result."""


def figures(result: Result, classes: Mapping[str, str] | None = None) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for.

    Parameters
    ----------
    result
        An affinity result.
    classes
        Head label -> class, to color heads by.
    """
    drawn = {
        WIRING: wiring_diagram(result, classes),
        ELLIPSE: wiring_diagram(result, classes, layout="ellipse"),
    }
    if len(shown_metrics(result)) == 2:
        drawn["Kernel against composition score"] = kernel_against_score(result)
    # A sketch has no table of all pairs to draw.
    if not is_sketched(result):
        drawn[MATRICES] = affinity_matrices(result)
        drawn[NULLS] = score_distributions(result)
    if len(_hubs(result, 1)):
        drawn["Hubs"] = hub_ranking(result, classes)
    curves = precision_recall(result, classes) if classes else None
    if curves is not None:
        drawn["Classes found by affinity"] = curves
    return drawn


def alternatives(
    result: Result, classes: Mapping[str, str] | None = None, names: Sequence[str] | None = None
) -> dict[str, dict[str, go.Figure]]:
    """Of figures that show one score, the same for each score that there is: by name of the figure and of the score.

    Parameters
    ----------
    result, classes
        As of `figures`.
    names
        Of which figures; all by default.
    """
    metrics, sketched = shown_metrics(result), is_sketched(result)
    if len(metrics) < 2:
        return {}
    draw: dict[str, Callable[[str], go.Figure]] = {
        WIRING: lambda metric: wiring_diagram(result, classes, metric=metric),
        ELLIPSE: lambda metric: wiring_diagram(result, classes, metric=metric, layout="ellipse"),
    }
    if not sketched:
        draw[MATRICES] = lambda metric: affinity_matrices(result, metric)
        draw[NULLS] = lambda metric: score_distributions(result, metric)
    wanted = draw if names is None else {name: make for name, make in draw.items() if name in names}
    return {name: {metric: make(metric) for metric in metrics} for name, make in wanted.items()}


def score_distributions(result: Result, metric: str | None = None) -> go.Figure:
    """How scores spread, beside pairs in reverse order and beside random subspaces."""
    metric, pairings = metric or shown_metrics(result)[0], shown_pairings(result)
    figure, where = panels([pairing_name(pairing) for pairing in pairings], shared_yaxes=True, horizontal_spacing=0.03)
    for place, pairing in zip(where, pairings, strict=True):
        for trace in _distribution(result, pairing, metric):
            trace.meta = {"pairing": pairing} | ({"counts": metric} if trace.legendgroup == "composing" else {})
            trace.showlegend = trace.legendgroup != "composing" and place == (1, 1)
            figure.add_trace(trace, *place)
    figure.update_xaxes(title_text=LONG_NAMES[metric], zeroline=False)
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    figure.update_yaxes(title_text="density of pairs", col=1)
    figure.update_layout(legend={"y": -0.24})
    return styled(figure, "Pairs that compose (filled), and what two nulls give", 90 + 320 * where[-1][0])


def _distribution(result: Result, pairing: str, metric: str) -> list[go.Bar | go.Scatter]:
    """Composing pairs as bars, reverse order as an outline, the law under the haar null as a line."""
    forward, backward = (_known(result[pairing][name]) for name in (metric, f"{metric}_reverse"))
    cells = np.histogram_bin_edges(np.concatenate([forward, backward]), bins=min(BINS, 8 + forward.size // 20))
    middles = ((cells[1:] + cells[:-1]) / 2).astype(np.float32)
    mean, spread = expected_score(result, pairing, metric)
    bars = go.Bar(
        x=middles,
        y=_density(forward, cells),
        width=float(cells[1] - cells[0]),
        name="pairs that compose",
        legendgroup="composing",
        marker={"color": pairing_color(pairing), "opacity": 0.55, "line": {"width": 0}},
        hovertemplate="%{x:.3g}: density %{y:.2g}<extra>compose</extra>",
    )
    outline = go.Scatter(
        x=middles,
        y=_density(backward, cells),
        mode="lines",
        line={"color": PURPLE, "width": 1.8, "shape": "hvh"},
        name="the same model, reverse order (later layer to earlier)",
        legendgroup="reverse",
        hovertemplate="%{x:.3g}: density %{y:.2g}<extra>reverse order</extra>",
    )
    return [bars, outline, _null_law(mean, spread, bars.y)]


def _null_law(mean: float, spread: float, heights: np.ndarray) -> go.Scatter:
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


def _hubs(result: Result, count: int) -> pd.DataFrame:
    """The strongest hubs, best first; none where no head has layers before and after it, or none exceeds the null."""
    if not set(shown_pairings(result)) <= set(COMPOSING):
        return pd.DataFrame()
    table = ranked_hubs(hub_scores(result, metric=shown_metrics(result)[0]))
    return table[table["hub_score"] > 0].head(count)


def hub_ranking(result: Result, classes: Mapping[str, str] | None = None, count: int = 15) -> go.Figure:
    """The strongest hubs: how far above the null a head is reached (inlet) and reaches (outlet), on average."""
    metric = shown_metrics(result)[0]
    table = _hubs(result, count)[::-1]
    named = {label: f"{label} ({class_text(name)})" for label, name in (classes or {}).items()}
    labels = [named.get(label, label) for label in table["head"]]
    figure = go.Figure()
    for side, name, color in (
        ("outlet", "outlet: writes to later heads", ORANGE),
        ("inlet", "inlet: reads earlier heads", BLUE),
    ):
        bars = go.Bar(
            x=table[side].to_numpy(np.float32),
            y=labels,
            orientation="h",
            name=name,
            marker_color=color,
            customdata=table["hub_score"].to_numpy(np.float32),
            meta={"side": side},
            hovertemplate=f"%{{y}}: {side} %{{x:.3g}}, hub score %{{customdata:.3g}}<extra></extra>",
        )
        figure.add_trace(bars)
    figure.update_xaxes(title_text=f"mean {LONG_NAMES[metric]} above its expected value")
    figure.update_yaxes(showgrid=False)
    figure.update_layout(barmode="group", bargap=0.3, legend={"traceorder": "reversed", "y": 1, "yanchor": "bottom"})
    figure.update_layout(meta={"hubs": {"metric": metric, "names": named, "count": count}})
    return styled(figure, "Hubs: heads that many heads reach and that reach many", 150 + 26 * max(len(table), 4))
