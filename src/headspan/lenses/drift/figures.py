"""Drift between two checkpoints, drawn: distances per role and head, angles, distances against the null, spectra."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import KV_HEAD, LAYER, ROLES, Role, head_axis
from headspan.lenses.drift.schema import SPACES
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, GREEN, LINE, PURPLE, SEQUENTIAL, VERMILION, styled

COLORS: dict[Role, str] = {"Q": BLUE, "K": VERMILION, "V": GREEN, "O": PURPLE}
BIN = 5


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures of a drift; what did not move at all has only the first."""
    drawn = {"Drift of every head": drift_heatmaps(result)}
    if int(result.attrs["identical"]):
        return drawn
    drawn["Drift against a random change"] = drift_against_null(result)
    drawn["Angles between before and after"] = angle_histograms(result)
    drawn["Spectra of heads before and after"] = head_spectra(result)
    return drawn


def _title(role: Role) -> str:
    return f"W<sub>{role}</sub>: {SPACES[role]}s"


def drift_heatmaps(result: Result) -> go.Figure:
    """One panel per role, layers upward: distance from before to after, as a share of what unrelated spaces have."""
    figure = make_subplots(1, 4, subplot_titles=[_title(role) for role in ROLES], horizontal_spacing=0.04)
    for column, role in enumerate(ROLES, start=1):
        view = result.grid(role)
        beside = ("grassmann", "grassmann_null", "grassmann_z", "relative_change")
        kv = head_axis(role) == KV_HEAD and result.attrs["n_kv_heads"] < result.attrs["n_heads"]
        panel = go.Heatmap(
            z=_share(view),
            x=view[head_axis(role)].values,
            y=[str(layer) for layer in view[LAYER].values],
            customdata=np.stack([view[name].values for name in beside], axis=-1),
            hovertemplate=f"L%{{y}}{'K' if kv else 'H'}%{{x}} {role}: %{{customdata[0]:.3f}}, %{{z:.0%}} of unrelated"
            "<br>a random change of the same size: %{customdata[1]:.3f}, z = %{customdata[2]:.1f}<br>"
            "relative change %{customdata[3]:.3g}<extra></extra>",
            coloraxis="coloraxis",
            hoverongaps=False,
            xgap=1,
            ygap=1,
        )
        figure.add_trace(panel, 1, column)
        figure.update_xaxes(title_text="kv head" if kv else "head", dtick=max(1, panel.z.shape[1] // 8), col=column)
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(showgrid=False, zeroline=False, type="category", nticks=13)
    figure.update_yaxes(title_text="layer", col=1)
    figure.update_yaxes(showticklabels=False, col=2).update_yaxes(showticklabels=False, col=3)
    figure.update_yaxes(showticklabels=False, col=4)
    bar = {"title": {"text": "share"}, "tickformat": ".0%"}
    largest = max(float(np.nanmax([0.0, *np.ravel(trace.z)])) for trace in figure.data)
    scale = {"colorscale": SEQUENTIAL, "cmin": 0, "cmax": largest or 1.0, "colorbar": bar}
    figure.update_layout(coloraxis=scale)
    title = "How far every head moved, as a share of the distance of unrelated spaces"
    return styled(figure, title, 190 + max(180, 24 * view.sizes[LAYER]))


def _share(view: xr.Dataset) -> np.ndarray:
    unrelated = view["grassmann_unrelated"].values
    return np.asarray(view["grassmann"].values / np.where(unrelated > 0, unrelated, np.nan))


def drift_against_null(result: Result) -> go.Figure:
    """Every head that changed: its drift over what a random change of the same size gives; on the diagonal, as much."""
    figure = go.Figure()
    rows = result.table("heads")
    rows = rows.assign(label=rows["head"].where(rows["head"].notna(), rows["kv_head"]))
    rows = rows[rows["grassmann"].notna() & ~rows["unchanged"]]
    top = 1.05 * float(np.nanmax([1e-9, *rows["grassmann"], *rows["grassmann_null"]]))
    diagonal = {"color": CHANCE, "width": 1.5, "dash": "dash"}
    figure.add_scatter(x=[0, top], y=[0, top], mode="lines", line=diagonal, name="as a random change", hoverinfo="skip")
    for role in ROLES:
        here = rows[rows["role"] == role]
        if here.empty:
            continue
        figure.add_scatter(
            x=here["grassmann_null"],
            y=here["grassmann"],
            error_x={"array": 2 * here["grassmann_null_sd"], "color": LINE, "thickness": 1, "width": 0},
            mode="markers",
            name=f"W<sub>{role}</sub>",
            text=here["label"],
            customdata=here[["grassmann_z", "grassmann_q", "relative_change"]].to_numpy(),
            hovertemplate="%{text} " + role + ": %{y:.3f}, expected %{x:.3f}<br>z = %{customdata[0]:.1f}, q = "
            "%{customdata[1]:.2g}<br>relative change %{customdata[2]:.3g}<extra></extra>",
            marker={"color": COLORS[role], "size": 7, "opacity": 0.8},
        )
    figure.update_xaxes(title_text="Grassmann distance after a random change of the same size (two sd)", range=[0, top])
    figure.update_yaxes(title_text="Grassmann distance moved", range=[0, top])
    return styled(figure, "Heads that moved more, or less, than a random change of the same size", 520)


def angle_histograms(result: Result) -> go.Figure:
    """Principal angles between each head's space before and after, over all heads that changed, one panel per role."""
    figure = make_subplots(1, 4, subplot_titles=[_title(role) for role in ROLES], horizontal_spacing=0.05)
    edges = np.arange(0, 90 + BIN, BIN)
    for column, role in enumerate(ROLES, start=1):
        view = result.dataset(role)
        angles = np.degrees(view["angles"].values[~view["unchanged"].values])
        counts = np.histogram(angles[np.isfinite(angles)], edges)[0] / max(1, len(angles))
        bars = go.Bar(
            x=(edges[1:] + edges[:-1]) / 2,
            y=counts,
            marker_color=COLORS[role],
            hovertemplate="%{x}°: %{y:.2f} per head<extra></extra>",
            showlegend=False,
        )
        figure.add_trace(bars, 1, column)
    figure.update_xaxes(range=[0, 90], dtick=30, ticksuffix="°")
    figure.update_yaxes(title_text="angles per changed head", col=1)
    return styled(figure, "By how much the directions of heads turned", 340)


def head_spectra(result: Result) -> go.Figure:
    """Singular values of the heads of each role, mean over heads, before and after."""
    figure = make_subplots(1, 4, subplot_titles=[_title(role) for role in ROLES], horizontal_spacing=0.05)
    for column, role in enumerate(ROLES, start=1):
        view = result.dataset(role)
        for name, color, dash in (("before", CHANCE, "solid"), ("after", COLORS[role], "solid")):
            values = view[f"singular_value_{name}"].values
            mean = values.mean(0)
            line = go.Scatter(
                x=np.arange(1, len(mean) + 1),
                y=mean,
                mode="lines",
                line={"color": color, "width": 2.5, "dash": dash},
                name=name if name == "before" else f"after, W<sub>{role}</sub>",
                legendgroup=name if name == "before" else role,
                showlegend=name == "after" or column == 1,
                hovertemplate=f"{name}, singular value %{{x}}: %{{y:.3g}}<extra></extra>",
            )
            figure.add_trace(line, 1, column)
    figure.update_xaxes(title_text="rank")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="singular value", col=1)
    figure.update_layout(legend_y=-0.3)
    return styled(figure, "Singular values of heads before and after, mean over heads", 400)
