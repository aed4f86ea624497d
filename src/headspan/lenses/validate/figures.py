"""Geometry against behavior, drawn: distances and divergences, scores and effects, how well scores rank effects."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREEN, ORANGE, VERMILION, styled

CHOSEN = {"other": GREEN, "weak": BLUE, "strong": VERMILION}
OUTCOMES = {"pattern_change": "pattern", "loss_size": "loss"}
SCORES = {"projection_kernel": (ORANGE, "projection kernel"), "composition_score": (BLUE, "composition score")}


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    drawn = {}
    if "distance" in result:
        drawn["Distance against behavior"] = distance_scatter(result)
    if "cause" in result:
        if result.table("pairs")["pattern_change"].notna().any():
            drawn["Affinity against causal effect"] = cause_scatter(result)
        drawn["How scores rank effects"] = ranking_figure(result)
    return drawn


def distance_scatter(result: Result) -> go.Figure:
    """Every two heads of a layer: distance of their spaces, divergence of their patterns, colored by layer."""
    own = result.grid("distance")
    upper = np.triu_indices(own.sizes["head"], 1)
    figure = go.Figure()
    for place, layer in enumerate(own["layer"].values):
        here = own.isel(layer=place)
        value = float(here["spearman"])
        trace = go.Scatter(x=here["space_distance"].values[upper], y=here["pattern_divergence"].values[upper])
        color = CATEGORIES[place % len(CATEGORIES)]
        trace.update(mode="markers", marker={"size": 7, "color": color, "opacity": 0.8})
        names = [f"L{layer}H{a} and L{layer}H{b}" for a, b in zip(*upper, strict=True)]
        trace.update(name=f"layer {layer}: {value:+.2f}", customdata=names)
        figure.add_trace(trace.update(hovertemplate="%{customdata}<extra></extra>"))
    figure.update_xaxes(title_text="Grassmann distance of attention spaces")
    figure.update_yaxes(title_text="Jensen-Shannon divergence of patterns, nats", rangemode="tozero")
    title = f"Do close heads attend alike? Mean rank correlation {float(own['mean_spearman']):+.2f}"
    figure.update_layout(legend={"y": -0.2})
    return styled(figure, title, 460)


def cause_scatter(result: Result) -> go.Figure:
    """Projection kernel against the change of the target's pattern; a stem leads to what is expected."""
    table = result.table("pairs").dropna(subset=["pattern_change"])
    pairings = list(dict.fromkeys(table["pairing"]))
    figure = make_subplots(1, len(pairings), subplot_titles=pairings, horizontal_spacing=0.08)
    for column, pairing in enumerate(pairings, start=1):
        own = table[table["pairing"] == pairing]
        figure.add_trace(_stems(own[own["chosen"] != "other"]), 1, column)
        for kind, color in CHOSEN.items():
            here = own[own["chosen"] == kind]
            trace = go.Scatter(x=here["projection_kernel"], y=here["pattern_change"], name=kind, mode="markers")
            size, opacity = (5, 0.35) if kind == "other" else (8, 0.9)
            trace.update(marker={"color": color, "size": size, "opacity": opacity}, legendgroup=kind)
            trace.update(customdata=here["src"] + " to " + here["dst"], showlegend=column == 1)
            figure.add_trace(trace.update(hovertemplate="%{customdata}: %{y:.3g}<extra></extra>"), 1, column)
        figure.update_xaxes(title_text="projection kernel", row=1, col=column)
    figure.update_yaxes(title_text="change of the target's pattern, nats", row=1, col=1)
    figure.update_yaxes(type="log")
    figure.update_layout(legend={"y": -0.2})
    return styled(figure, "Removed messages of equal read energy; stems end at what is expected", 430)


def _stems(own: pd.DataFrame) -> go.Scatter:
    x = np.repeat(own["projection_kernel"].to_numpy(), 3)
    y = np.stack([own["pattern_change"], own["pattern_expected"], np.full(len(own), np.nan)], axis=1).ravel()
    return go.Scatter(x=x, y=y, mode="lines", line={"color": CHANCE, "width": 1}, hoverinfo="skip", showlegend=False)


def ranking_figure(result: Result) -> go.Figure:
    """Rank correlation of each score with each effect, the range under its null, and the untrained twin."""
    table = result.table("rankings").dropna(subset=["spearman"])
    figure = make_subplots(1, len(SCORES), subplot_titles=[words for _, words in SCORES.values()], shared_yaxes=True)
    for column, (score, (color, _)) in enumerate(SCORES.items(), start=1):
        own = table[table["score"] == score]
        names = own["pairing"] + " " + own["outcome"].map(OUTCOMES)
        for low, high, name in zip(own["null_low"], own["null_high"], names, strict=True):
            bar = go.Scatter(x=[low, high], y=[name, name], mode="lines", line={"color": CHANCE, "width": 8})
            figure.add_trace(bar.update(opacity=0.4, hoverinfo="skip", showlegend=False), 1, column)
        for values, symbol, words in (
            (own["spearman"], "circle", "trained"),
            (own["spearman_untrained"], "circle-open", "untrained"),
        ):
            trace = go.Scatter(x=values, y=names, mode="markers", marker={"color": color, "size": 9, "symbol": symbol})
            trace.update(name=words, showlegend=column == 1, hovertemplate="%{x:+.2f}<extra></extra>")
            figure.add_trace(trace, 1, column)
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(range=[-1.05, 1.05], title_text="Spearman's correlation")
    figure.update_layout(legend={"y": -0.25})
    rows = len(table) // len(SCORES)
    return styled(figure, "Does a score rank effects at equal read energy? Bars: 95 % under the null", 200 + 40 * rows)
