"""A change drawn: leading directions against those before, where changes lie, and attention against a random change."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from headspan.lenses.compare.parts import wiring_pairings
from headspan.lenses.compare.schema import CHANGED, SHARES
from headspan.lenses.wiring_layout import pairing_name, panels
from headspan.result import Result
from headspan.statistics import mean_interval
from headspan.theme import BLUE, CHANCE, GREY, LINE, ORANGE, SEQUENTIAL, SKY, VERMILION, styled


def change_figures(result: Result) -> dict[str, go.Figure]:
    """The figures that this comparison has the numbers for."""
    drawn = {}
    if "channels" in result:
        drawn["Channels gained and lost"] = channel_scatter(result)
    if "change" in result:
        drawn["Leading directions after, against all before"] = similarity_panels(result)
    if any("read_share" in result[f"wiring/{pairing}"] for pairing in wiring_pairings(result)):
        drawn["Where changes lie"] = share_bars(result)
    if "behavior" in result:
        drawn["Attention against a random change"] = attention_scatter(result)
    return drawn


def similarity_panels(result: Result) -> go.Figure:
    """Per kind of matrix and layer, the cosine of each leading direction with its nearest before; intruders colored."""
    rows, level, threshold = result.table("directions"), float(result.attrs["level"]), float(result.attrs["similarity"])
    kinds = [kind for kind in CHANGED if kind in set(rows["matrix"])]
    figure, places = panels([f"W<sub>{kind.removeprefix('W_')}</sub>" for kind in kinds], vertical_spacing=0.16)
    new = rows["similarity"] < threshold
    groups = {
        "kept": (rows[~new], GREY, "circle", 5),
        "new, as after a random change": (rows[new & ~(rows["similarity_q"] < level)], SKY, "circle-open", 8),
        "intruder": (rows[new & (rows["similarity_q"] < level)], VERMILION, "diamond", 9),
    }
    for name, (all_rows, color, symbol, size) in groups.items():
        first = True
        for kind, place in zip(kinds, places, strict=True):
            here = all_rows[all_rows["matrix"] == kind]
            if here.empty:
                continue
            points = go.Scatter(
                x=here["layer"],
                y=here["similarity"],
                customdata=np.stack([here["direction"] + 1, here["direction_share"], here["similarity_null"]], axis=-1),
                mode="markers",
                marker={"color": color, "symbol": symbol, "size": size, "opacity": 0.8},
                name=name,
                legendgroup=name,
                showlegend=first,
                hovertemplate=f"{kind}, layer %{{x}}, direction %{{customdata[0]:.0f}}: cosine %{{y:.2f}}<br>"
                "%{customdata[1]:.1%} of the squared norm; a random change: %{customdata[2]:.2f}<extra></extra>",
            )
            figure.add_trace(points, *place)
            first = False
    figure.add_hline(y=threshold, line={"color": LINE, "width": 1, "dash": "dot"})
    figure.update_yaxes(range=[-0.03, 1.05])
    figure.update_yaxes(title_text="cosine", col=1)
    figure.update_xaxes(title_text="layer", title_standoff=2, dtick=max(1, int(rows["layer"].max() + 1) // 6))
    return styled(figure, "Leading directions after, and the nearest direction before", 130 + 230 * places[-1][0])


def channel_scatter(result: Result) -> go.Figure:
    """Leading channels that stand out, by pairing: coupling along their directions before and after."""
    rows = result.table("channel_changes")
    pairings = list(result["channels"].children)
    figure, places = panels([pairing_name(pairing) for pairing in pairings], horizontal_spacing=0.06)
    parts = {
        "leading before": (rows[rows["channel_before"].astype(bool)], "coupling_before", "loss", "lost", ORANGE),
        "leading after": (rows[rows["channel_after"].astype(bool)], "coupling_after", "gain", "gained", BLUE),
    }
    for name, (some, own, what, turned, color) in parts.items():
        for number, (pairing, place) in enumerate(zip(pairings, places, strict=True)):
            here = some[some["pairing"] == pairing]
            other = here[own] - here[what]
            x, y = (here[own], other) if what == "loss" else (other, here[own])
            certain = here[turned].astype(bool)
            points = go.Scatter(
                x=x,
                y=y,
                text=here["src"] + " → " + here["dst"],
                customdata=here[[f"{what}_null", f"{what}_z", f"{what}_q"]].to_numpy(),
                mode="markers",
                marker={
                    "color": np.where(certain, color, CHANCE),
                    "size": np.where(certain, 9, 5),
                    "symbol": "circle" if what == "gain" else "x-thin-open",
                },
                name=f"{name} ({turned}: colored)",
                legendgroup=name,
                showlegend=number == 0,
                hovertemplate=f"%{{text}}, {name}: coupling %{{x:.3f}} before, %{{y:.3f}} after<br>{what} after a "
                "random change: %{customdata[0]:.3f}; z = %{customdata[1]:.1f}, q = %{customdata[2]:.2g}"
                "<extra></extra>",
            )
            figure.add_trace(points, *place)
    figure.update_xaxes(title_text="coupling before", rangemode="tozero")
    figure.update_yaxes(title_text="coupling after", col=1)
    return styled(figure, "Channels gained and lost: coupling along the directions of leading channels", 440)


def share_bars(result: Result) -> go.Figure:
    """Mean share of changes inside the spaces of partners: pairs that compose, pairs in reverse order, rotations."""
    pairings = [pairing for pairing in wiring_pairings(result) if "read_share" in result[f"wiring/{pairing}"]]
    nodes = [result[f"wiring/{pairing}"] for pairing in pairings]
    titles = {"read_share": "Reader's change in write spaces", "write_share": "Writer's change in read spaces"}
    shares = [share for share in SHARES if any(np.isfinite(node[f"{share}_mean"]) for node in nodes)]
    figure, places = panels([titles[share] for share in shares], horizontal_spacing=0.1)
    for share, place in zip(shares, places, strict=True):
        bars = {
            "pairs that compose": ([float(node[f"{share}_mean"]) for node in nodes], BLUE),
            "reverse order": ([float(node[f"{share}_reverse"]) for node in nodes], SKY),
            "a random rotation": ([mean_interval(node[f"{share}_null"].values)[0] for node in nodes], CHANCE),
        }
        for name, (heights, color) in bars.items():
            bar = go.Bar(
                x=pairings,
                y=heights,
                name=name,
                legendgroup=name,
                showlegend=place == places[0],
                marker_color=color,
                hovertemplate=f"{name}, %{{x}}: %{{y:.2%}}<extra></extra>",
            )
            figure.add_trace(bar, *place)
    figure.update_layout(barmode="group")
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(title_text="share of the change", col=1)
    return styled(figure, "Where changes lie, mean over pairs of heads", 400)


def attention_scatter(result: Result) -> go.Figure:
    """Every head: how far its attention moved, over what random changes of the same size give; both logarithmic."""
    rows = result.table("attention")
    rows = rows[(rows["divergence"] > 0) & (rows["divergence_null"] > 0)]
    figure = go.Figure()
    if len(rows):
        both = rows[["divergence", "divergence_null"]].to_numpy()
        ends = [float(both.min()) * 0.8, float(both.max()) * 1.25]
        line = {"color": CHANCE, "width": 1.5, "dash": "dash"}
        figure.add_scatter(x=ends, y=ends, mode="lines", line=line, name="as a random change", hoverinfo="skip")
        certain = rows["divergence_q"] < float(result.attrs["level"])
        figure.add_scatter(
            x=rows["divergence_null"],
            y=rows["divergence"],
            text=rows["head"],
            customdata=rows[["divergence_z", "divergence_q"]].to_numpy(),
            mode="markers",
            name="heads",
            showlegend=False,
            marker={
                "color": rows["head_layer"],
                "colorscale": SEQUENTIAL,
                "showscale": True,
                "colorbar": {"title": {"text": "layer"}, "dtick": max(1, (int(rows["head_layer"].max()) + 1) // 6)},
                "size": 9,
                "line": {
                    "color": [VERMILION if one else LINE for one in certain],
                    "width": [2 if one else 0.5 for one in certain],
                },
            },
            hovertemplate="%{text}: %{y:.3g} nats, expected %{x:.3g}<br>"
            "z = %{customdata[0]:.1f}, q = %{customdata[1]:.2g}<extra></extra>",
        )
    ticks = {"type": "log", "dtick": "D2", "tickformat": ".2g"}
    figure.update_xaxes(title_text="divergence after a random change of the same size (nats)", **ticks)
    figure.update_yaxes(title_text="divergence of attention (nats)", **ticks)
    figure.update_layout(legend_y=-0.25)
    return styled(figure, "How far attention moved (red outline: q below the level)", 480)
