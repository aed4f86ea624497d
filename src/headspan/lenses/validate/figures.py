"""Geometry against behavior, drawn: distances and divergences, scores and effects, how well scores rank effects."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREEN, ORANGE, VERMILION, styled

CHOSEN = {"strong": VERMILION, "weak": BLUE, "random": GREEN}
OUTCOMES = {
    "pattern_change": "pattern",
    "pattern_excess": "pattern beyond control",
    "loss_size": "loss",
    "loss_excess": "loss beyond control",
}
SCORES = {"projection_kernel": (ORANGE, "projection kernel"), "composition_score": (BLUE, "composition score")}


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    drawn = {}
    if "distance" in result:
        drawn["Distance against behavior"] = distance_scatter(result)
    if "cause" in result:
        if result.table("pairs")["pattern_change"].notna().any():
            drawn["Affinity against causal effect"] = cause_scatter(result)
        drawn["How scores rank effects"] = ranking_intervals(result)
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
    """Projection kernel against the change of the target's pattern; a stem leads to the mean of its controls."""
    table = result.table("pairs").dropna(subset=["pattern_change"])
    pairings = list(dict.fromkeys(table["pairing"]))
    figure = make_subplots(1, len(pairings), subplot_titles=pairings, horizontal_spacing=0.08)
    for column, pairing in enumerate(pairings, start=1):
        own = table[table["pairing"] == pairing]
        figure.add_trace(_stems(own), 1, column)
        for kind, color in CHOSEN.items():
            here = own[own["chosen"] == kind]
            trace = go.Scatter(x=here["projection_kernel"], y=here["pattern_change"], name=kind, mode="markers")
            trace.update(marker={"color": color, "size": 8, "opacity": 0.85}, showlegend=column == 1, legendgroup=kind)
            trace.update(customdata=here["src"] + " to " + here["dst"])
            figure.add_trace(trace.update(hovertemplate="%{customdata}: %{y:.3g}<extra></extra>"), 1, column)
        figure.update_xaxes(title_text="projection kernel", row=1, col=column)
    figure.update_yaxes(title_text="change of the target's pattern, nats", row=1, col=1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(legend={"y": -0.2})
    return styled(figure, "What a removed message does; grey stems end at the control", 430)


def _stems(own: pd.DataFrame) -> go.Scatter:
    x = np.repeat(own["projection_kernel"].to_numpy(), 3)
    y = np.stack([own["pattern_change"], own["pattern_control"], np.full(len(own), np.nan)], axis=1).ravel()
    return go.Scatter(x=x, y=y, mode="lines", line={"color": CHANCE, "width": 1}, hoverinfo="skip", showlegend=False)


def ranking_intervals(result: Result) -> go.Figure:
    """Rank correlation of each score with each effect, with its interval; per pairing and sample of pairs."""
    table = result.table("rankings")
    table = table[table["outcome"].isin(list(OUTCOMES))].dropna(subset=["spearman"])
    samples = list(dict.fromkeys(table["sample"]))
    figure = make_subplots(
        1, max(len(samples), 1), subplot_titles=[f"{name} pairs" for name in samples], shared_yaxes=True
    )
    for column, sample in enumerate(samples, start=1):
        for shift, (score, (color, words)) in enumerate(SCORES.items()):
            own = table[(table["sample"] == sample) & (table["score"] == score)]
            trace = _intervals(own, _rows(table), shift, color)
            figure.add_trace(trace.update(name=words, showlegend=column == 1, legendgroup=score), 1, column)
        figure.add_vline(x=0, line={"color": CHANCE, "dash": "dot"}, row=1, col=column)
    rows = _rows(table)
    names = [f"{pairing} {OUTCOMES[outcome]}" for pairing, outcome in rows]
    figure.update_yaxes(tickvals=list(range(len(rows))), ticktext=names, autorange="reversed")
    figure.update_xaxes(range=[-1.05, 1.05], title_text="Spearman's correlation")
    figure.update_layout(legend={"y": -0.2})
    return styled(figure, "Does a score rank the effects of removed messages? Bars: 95%", 180 + 26 * len(rows))


def _rows(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Pairings and outcomes that have a number, from the top."""
    known = set(zip(table["pairing"], table["outcome"], strict=True))
    pairings = dict.fromkeys(table["pairing"])
    return [(pairing, outcome) for pairing in pairings for outcome in OUTCOMES if (pairing, outcome) in known]


def _intervals(own: pd.DataFrame, rows: list[tuple[str, str]], shift: int, color: str) -> go.Scatter:
    order = {row: place for place, row in enumerate(rows)}
    places = [order[row.pairing, row.outcome] - 0.12 + 0.24 * shift for row in own.itertuples()]
    bars = {
        "array": own["high"] - own["spearman"],
        "arrayminus": own["spearman"] - own["low"],
        "type": "data",
        "symmetric": False,
        "width": 0,
        "thickness": 1.5,
    }
    trace = go.Scatter(x=own["spearman"], y=places, mode="markers", marker={"color": color, "size": 8}, error_x=bars)
    return trace.update(hovertemplate="%{x:+.2f}<extra></extra>")
