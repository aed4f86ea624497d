"""Channels drawn: the leading channel of all pairs, the spectrum of one pair, and what happens without channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.lenses.channels.schema import (
    LEADING,
    NOTHING,
    RANDOM_READ,
    RANDOM_SENT,
    RANDOM_SHARED,
    REST,
    SHARED,
    top_nodes,
)
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, GREEN, ORANGE, PURPLE, SKY, VERMILION, styled

PAIRS, GRAPH, SPECTRUM, USE = (
    "Channels of all pairs",
    "Graph of the strongest channels",
    "Spectrum of the pair",
    "Without the channels",
)
BEHIND = {PAIRS: ("OK/coupling", "strength"), USE: ("use/copied", "removed")}
"""Variables behind figures, for who saves their data."""
COLORS = {"OQ": BLUE, "OK": VERMILION, "OV": GREEN}
REMOVED = {
    LEADING: VERMILION,
    REST: BLUE,
    RANDOM_SENT: ORANGE,
    RANDOM_READ: CHANCE,
    SHARED: GREEN,
    RANDOM_SHARED: PURPLE,
}
SIGNIFICANT = 0.05
NAMED, ARCS = 6, 12
DOTS = 300
"""Most dots of one kind in a panel: every dot is an element of the page, and all are drawn in one task."""


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    drawn: dict[str, go.Figure] = {}
    grids = [pairing for pairing in top_nodes(result) if pairing in result]
    if grids:
        drawn[PAIRS] = pair_scatter(result, grids)
    if "pair" in result:
        drawn[SPECTRUM] = spectrum(result)
    else:
        drawn[GRAPH] = graph(result)
    if "use" in result:
        drawn[USE] = without_channels(result)
    return drawn


def pair_scatter(result: Result, pairings: list[str]) -> go.Figure:
    """Coupling against what the null expects, a panel for each pairing; the strongest channels are named.

    Of many pairs, those that exceed the null most and a sample of the background.
    """
    figure = make_subplots(1, len(pairings), subplot_titles=pairings, shared_yaxes=True, horizontal_spacing=0.04)
    for place, pairing in enumerate(pairings, start=1):
        node = result.dataset(pairing)
        first = node.isel(null=0)
        x, y, q = (first[name].values.ravel() for name in ("coupling_null", "coupling", "coupling_q"))
        src, dst = np.meshgrid(first["src"].values, first["dst"].values, indexing="ij")
        names = np.char.add(np.char.add(src.astype(str).ravel(), " → "), dst.astype(str).ravel())
        known = ~np.isnan(y)
        for chosen, color, label in (
            (known & ~(q < SIGNIFICANT), CHANCE, "background"),
            (known & (q < SIGNIFICANT), COLORS[pairing], "q < 0.05"),
        ):
            some = _drawn(np.flatnonzero(chosen), (y / x)[chosen] if label != "background" else None)
            dots = go.Scatter(x=x[some], y=y[some], mode="markers", text=names[some], showlegend=False)
            dots.update(marker={"size": 5, "color": color, "opacity": 0.35 if color == CHANCE else 0.8})
            dots.update(hovertemplate="%{text}: %{y:.3f}, expected %{x:.3f}<extra>" + label + "</extra>")
            figure.add_trace(dots, 1, place)
        ends = [float(np.nanmin(x)), float(np.nanmax(x))]
        line = go.Scatter(x=ends, y=ends, mode="lines", line={"color": CHANCE, "dash": "dot"}, showlegend=False)
        figure.add_trace(line.update(hoverinfo="skip"), 1, place)
        spans = [float(np.ptp(np.log10(each[known & (each > 0)]))) for each in (x, y)]
        _name_strongest(figure, result.dataset(f"top/{pairing}"), place, spans)
    null = result.attrs["null"]
    # Written out: a logarithmic axis would name its ticks 2 and 5 between the powers of ten.
    ticks = [digit * 10.0**power for power in range(-6, 1) for digit in (1, 2, 5)]
    named = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks], "tickangle": 0}
    figure.update_xaxes(title_text=f"expected ({null})", **named)
    figure.update_yaxes(**named)
    figure.update_yaxes(title_text="coupling of the leading channel", col=1)
    return styled(figure, "The leading channel of every pair; colored: q < 0.05, dotted: as expected", 430)


def _drawn(places: np.ndarray, ratio: np.ndarray | None) -> np.ndarray:
    """At most DOTS of these pairs: those that exceed the null most, or a sample where that is not asked.

    More would need WebGL, which not every browser has.
    """
    if len(places) <= DOTS:
        return places
    if ratio is None:
        return np.sort(np.random.default_rng(0).choice(places, DOTS, replace=False))
    return np.asarray(places[np.sort(np.argsort(-ratio, kind="stable")[:DOTS])])


def _name_strongest(figure: go.Figure, node: xr.Dataset, column: int, spans: Sequence[float]) -> None:
    """Labels of the channels that stand out most, where they do not lie on each other; `spans` of the axes."""
    first = node.isel(null=0)
    placed: list[tuple[float, float]] = []
    # A label is nearly half as wide as a panel, and as high as a line of text.
    wide, tall = 0.45 * spans[0], 0.07 * spans[1]
    for place in range(min(3 * NAMED, node.sizes["channel"])):
        one = first.isel(channel=place)
        x, y = (float(np.log10(one[name])) for name in ("coupling_null", "coupling"))
        near = any(abs(x - a) < wide and abs(y - b) < tall for a, b in placed)
        if float(one["coupling_q"]) < SIGNIFICANT and not near and len(placed) < NAMED:
            placed.append((x, y))
            figure.add_annotation(
                x=x,
                y=y,
                text=f"{one['src'].item()} → {one['dst'].item()}",
                showarrow=False,
                yshift=10,
                row=1,
                col=column,
            )


def graph(result: Result) -> go.Figure:
    """Heads by layer and index; an arc for channels that stand out most, wider the stronger they are."""
    figure = go.Figure()
    layers, width = int(result.attrs["n_layers"]), int(result.attrs["n_heads"])
    grid = np.indices((layers, width)).reshape(2, -1)
    dots = go.Scatter(x=grid[0], y=grid[1], mode="markers", marker={"size": 6, "color": CHANCE, "opacity": 0.5})
    labels = [f"L{layer}H{head}" for layer, head in grid.T]
    figure.add_trace(dots.update(text=labels, hovertemplate="%{text}<extra></extra>", showlegend=False))
    listed = top_nodes(result)
    strongest = max(float(node["strength"].max()) for node in listed.values())
    for pairing, node in listed.items():
        first, named = node.isel(null=0), False
        for place in range(min(ARCS, node.sizes["channel"])):
            one = first.isel(channel=place)
            if not float(one["coupling_q"]) < SIGNIFICANT:
                continue
            ends = np.array([_place(str(one[side].values)) for side in ("src", "dst")], dtype=float)
            bend = np.linspace(0, 1, 20)[:, None]
            path = ends[0] + (ends[1] - ends[0]) * bend + np.array([0, 0.35]) * (4 * bend * (1 - bend))
            arc = go.Scatter(x=path[:, 0], y=path[:, 1], mode="lines", name=f"{pairing} channel", legendgroup=pairing)
            arc.update(
                line={"color": COLORS[pairing], "width": 0.5 + 4.5 * float(one["strength"]) / strongest}, opacity=0.75
            )
            arc.update(showlegend=not named, text=[_told(one)] * len(path), hovertemplate="%{text}<extra></extra>")
            figure.add_trace(arc)
            named = True
    figure.update_xaxes(title_text="layer", dtick=1 if layers <= 16 else None, showgrid=False)
    figure.update_yaxes(title_text="head", showgrid=False, autorange="reversed")
    return styled(figure, "The channels that stand out most (q < 0.05)", 220 + 22 * min(width, 32))


def _place(label: str) -> tuple[int, int]:
    layer, _, head = label.removeprefix("L").partition("H")
    return int(layer), int(head)


def _told(one: xr.Dataset) -> str:
    tokens = f"<br>source: {one['tokens'].sel(side='source').item()}" if "tokens" in one else ""
    number = f"coupling {float(one['coupling']):.3f}, z {float(one['coupling_z']):.1f}, {one['sign'].item()}"
    return f"{one['channel'].item()}<br>{number}{_escaped(tokens)}"


def _escaped(text: str) -> str:
    """Tokens of a model as plain text of a figure; the line break of our own stays."""
    head, cut, rest = text.partition("<br>")
    return head + cut + rest.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def spectrum(result: Result) -> go.Figure:
    """Singular values of the pair beside those of random rotations, mean and three standard deviations."""
    pairings = list(top_nodes(result))
    figure = make_subplots(1, len(pairings), subplot_titles=pairings, horizontal_spacing=0.07)
    for place, pairing in enumerate(pairings, start=1):
        node = result.dataset(f"pair/{pairing}")
        number = np.arange(node.sizes["place"])
        mean, sd = node["singular_value_null"].values, node["singular_value_null_sd"].values
        band = go.Scatter(
            x=np.concatenate([number, number[::-1]]),
            y=np.concatenate([mean + 3 * sd, (mean - 3 * sd)[::-1]]),
            fill="toself",
        )
        band.update(
            mode="lines",
            line={"width": 0},
            fillcolor=CHANCE,
            opacity=0.3,
            hoverinfo="skip",
            name="random rotations, ± 3 sd",
        )
        line = go.Scatter(
            x=number, y=mean, mode="lines", line={"color": CHANCE, "dash": "dot"}, name="random rotations, mean"
        )
        dots = go.Scatter(
            x=number, y=node["singular_value"].values, mode="lines+markers", line_color=COLORS[pairing], name=pairing
        )
        for trace in (band, line, dots):
            figure.add_trace(trace.update(showlegend=place == 1 and trace is not dots), 1, place)
    figure.update_xaxes(title_text="channel", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="strength", col=1)
    figure.update_layout(legend={"y": -0.22})
    title = f"Channels from {result.attrs['src']} to {result.attrs['dst']}"
    return styled(figure, title, 380)


def without_channels(result: Result) -> go.Figure:
    """Share of repeated tokens that is copied against the number of channels removed, beside controls and the twin."""
    rows = result.table("use")
    pairings = list(dict.fromkeys(rows["pairing"]))
    figure = make_subplots(1, len(pairings), subplot_titles=pairings, shared_yaxes=True, horizontal_spacing=0.05)
    for place, pairing in enumerate(pairings, start=1):
        own = rows[(rows["pairing"] == pairing) & (rows["untrained"] == 0)]
        for removed, color in REMOVED.items():
            some = own[own["removed"] == removed].groupby("channels")["copied"]
            if not len(some):
                continue  # one destination shares with none
            mean, low, high = some.mean(), some.min(), some.max()
            trace = go.Scatter(x=mean.index, y=mean, mode="lines+markers", name=removed, line_color=color)
            trace.update(error_y={"array": high - mean, "arrayminus": mean - low, "thickness": 1, "width": 3})
            figure.add_trace(trace.update(showlegend=place == 1, legendgroup=removed), 1, place)
        twin = rows[(rows["pairing"] == pairing) & (rows["untrained"] == 1)].groupby("channels")["copied"].mean()
        line = go.Scatter(x=twin.index[1:], y=twin.values[1:], mode="lines", line={"color": SKY, "dash": "dash"})
        figure.add_trace(line.update(name="untrained, all of these", showlegend=place == 1), 1, place)
        plain = float(own.loc[own["removed"] == NOTHING, "copied"].iloc[0])
        figure.add_hline(y=plain, line={"color": CHANCE, "dash": "dot"}, row=1, col=place)
    figure.update_xaxes(
        title_text="channels removed (random ones: as many directions, equal read energy)",
        type="log",
        dtick=np.log10(2),
    )
    figure.update_yaxes(range=[0, 1.03])
    figure.update_yaxes(title_text="share of repeated tokens copied", col=1)
    figure.update_layout(legend={"y": -0.22})
    return styled(
        figure, f"Without what {result.attrs['src']} sends to {result.attrs['used']}; dotted: nothing removed", 460
    )
