"""The course of training, drawn: change points with their intervals, edges, drift and spectra on one axis of steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.sweeps.course.wiring import NULLS
from headspan.theme import BLUE, CATEGORIES, CHANCE, TEXT, VERMILION, styled

CHANGES, EDGES = 20, 8
COUNTS = (("solid", "circle"), ("dash", "square"), ("dot", "triangle-up"))
PANELS = {
    "stable_rank": "Stable rank",
    "energy_ratio": "Squared norm over its expectation at initialization",
    "ks": "Distance from the spectrum of random matrices",
}


def figures(result: xr.DataTree) -> dict[str, go.Figure]:
    """All figures of all models that there are numbers for."""
    drawn: dict[str, go.Figure] = {}
    for node in result.children.values():
        of = f", {node.attrs['model']}" if len(result.children) > 1 else ""
        drawn |= {f"{name}{of}": figure for name, figure in _of_model(node).items()}
    return drawn


def _of_model(node: xr.DataTree) -> dict[str, go.Figure]:
    quantities = node["quantities"].to_dataset()
    drawn = {}
    if (quantities["change_p"] <= 0.05).any():
        drawn["When quantities change"] = changes(quantities)
    if "wiring" in node.children and (node["wiring"]["n_edges"] > 0).any():
        drawn["Wiring over training"] = edges(node["wiring"].to_dataset())
    if "movement" in node.children:
        drawn["Drift between steps"] = drift(node["movement"].to_dataset())
    if "matrices" in node.children:
        drawn["Spectra over training"] = spectra(node["matrices"].to_dataset())
    return drawn


def _places(steps: np.ndarray, axis: str) -> np.ndarray:
    """Steps as they are drawn: on a logarithmic axis step 0 stands at 1 + 0."""
    return np.asarray(steps, dtype=float) + (axis == "log")


def _time_axis(figure: go.Figure, axis: str, row: int) -> None:
    title = "step + 1" if axis == "log" else "step"
    figure.update_xaxes(type=axis, row="all", col="all")
    figure.update_xaxes(title_text=title, row=row, col=1)


def _line(x: np.ndarray, y: np.ndarray, name: str, color: str, **more: object) -> go.Scatter:
    known = np.isfinite(y)
    trace = go.Scatter(x=x[known], y=y[known], name=name, mode="lines+markers", marker={"size": 5})
    trace.update(line={"color": color}, marker_color=color, legendgroup=name)
    return trace.update(hovertemplate=f"{name}: %{{y:.3g}} at %{{x}}<extra></extra>", **more)


def _dashed(x: np.ndarray, y: np.ndarray, name: str, color: str, **more: object) -> go.Scatter:
    """What is expected under the null, beside a line of the same color."""
    trace = _line(x, y, name, color, mode="lines", **more)
    return trace.update(line={"color": color, "dash": "dash", "width": 1})


def changes(table: xr.Dataset) -> go.Figure:
    """The clearest change points in order of time, each with its 95 % interval."""
    p = table["change_p"].values
    chosen = np.flatnonzero((p <= 0.05) & np.isfinite(table["low"].values))
    chosen = chosen[np.lexsort((-table["explained"].values[chosen], p[chosen]))][:CHANGES]
    ordered = table.isel(quantity=chosen[np.argsort(-table["change"].values[chosen], kind="stable")])
    axis = str(table.attrs["axis"])
    at, low, high = (_places(ordered[name].values, axis) for name in ("change", "low", "high"))
    rises = ordered["after"].values > ordered["before"].values
    figure = make_subplots(1, 1)
    for up, name, color, sign in ((True, "rises", VERMILION, "triangle-up"), (False, "falls", BLUE, "triangle-down")):
        part = rises == up
        error = {"type": "data", "symmetric": False, "array": (high - at)[part], "arrayminus": (at - low)[part]}
        trace = go.Scatter(x=at[part], y=ordered["words"].values[part], mode="markers", name=name, error_x=error)
        trace.update(marker={"color": color, "symbol": sign, "size": 10})
        figure.add_trace(trace.update(hovertemplate="%{y}: step %{x:.0f}<extra></extra>"), 1, 1)
    figure.update_yaxes(categoryorder="array", categoryarray=list(ordered["words"].values))
    _time_axis(figure, axis, 1)
    ends = _places(table["step"].values[[0, -1]], axis)
    figure.update_xaxes(range=list(np.log10(ends) if axis == "log" else ends))
    return styled(figure, "Clearest change points, with 95 % intervals", 160 + 24 * len(chosen))


def edges(table: xr.Dataset) -> go.Figure:
    """Kernel of the edges that changed most, beside the haar null; and how many edges there are at each step."""
    axis, x = str(table.attrs["axis"]), _places(table["step"].values, str(table.attrs["axis"]))
    titles = ("Overlap of the edges that changed most (dimensions)", "Number of edges")
    figure = make_subplots(
        2, 1, shared_xaxes=True, subplot_titles=titles, row_heights=[0.65, 0.35], vertical_spacing=0.1
    )
    shown = table.isel(edge=slice(0, EDGES))
    for row, color in zip(range(shown.sizes["edge"]), CATEGORIES, strict=False):
        edge = shown.isel(edge=row)
        name = f"{edge['src'].values} → {edge['dst'].values}, {edge['pairing'].values}"
        figure.add_trace(_line(x, edge["score"].values, name, color), 1, 1)
    if shown.sizes["edge"]:
        figure.add_trace(_dashed(x, shown["score_null"].mean("edge").values, "expected (haar null)", CHANCE), 1, 1)
        figure.add_traces(list(_events(shown, x)), rows=1, cols=1)
    for pairing, (dash, symbol) in zip(table["counted_pairing"].values, COUNTS, strict=False):
        counts = table["n_edges"].sel(counted_pairing=pairing).values.astype(float)
        trace = _line(x, counts, f"number in {pairing}", TEXT)
        trace.update(line={"color": TEXT, "dash": dash, "shape": "hv"}, marker={"symbol": symbol, "size": 7})
        figure.add_trace(trace, 2, 1)
    whole = {"tickformat": "d", "rangemode": "tozero"}
    figure.update_yaxes(row=2, col=1, **whole, **({"dtick": 1} if int(table["n_edges"].max()) <= 5 else {}))
    _time_axis(figure, axis, 2)
    return styled(figure, f"Pairs of heads significant under {NULLS[str(table.attrs['null'])]}", 640)


def _events(shown: xr.Dataset, x: np.ndarray) -> Iterator[go.Scatter]:
    """Marks where edges appear and where they vanish, on their curves; an edge that was there at first has none."""
    steps, scores = shown["step"].values, shown["score"].values
    begun = shown["from_start"].values
    for name, symbol in (("appears", "circle-open"), ("vanishes", "x-thin-open")):
        rows = np.flatnonzero(np.isfinite(shown[name].values) & ~begun)
        at = np.searchsorted(steps, shown[name].values[rows])
        marker = {"symbol": symbol, "size": 14, "color": TEXT, "line": {"width": 2, "color": TEXT}}
        if len(rows):
            trace = go.Scatter(x=x[at], y=scores[rows, at], mode="markers", name=name, marker=marker)
            yield trace.update(hovertemplate=f"{name} at %{{x}}<extra></extra>")


def drift(table: xr.Dataset) -> go.Figure:
    """How far heads turned since the checkpoint before, beside a random change of the same size; and by how much."""
    axis, x = str(table.attrs["axis"]), _places(table["step"].values, str(table.attrs["axis"]))
    titles = ("Turn since the checkpoint before, rad (dashed: a random change of the same size)", "Relative change")
    figure = make_subplots(2, 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.1)
    for role, color in zip(table["role"].values, CATEGORIES, strict=False):
        here = table.sel(role=role)
        figure.add_trace(_line(x, here["grassmann"].values, f"W_{role}", color), 1, 1)
        figure.add_trace(_dashed(x, here["grassmann_null"].values, f"W_{role}", color, showlegend=False), 1, 1)
        figure.add_trace(_line(x, here["relative_change"].values, f"W_{role}", color, showlegend=False), 2, 1)
    figure.update_yaxes(rangemode="tozero")
    _time_axis(figure, axis, 2)
    return styled(figure, "Drift between checkpoints, median over heads", 560)


def spectra(table: xr.Dataset) -> go.Figure:
    """What sums up the spectra of whole matrices and tables, over steps; dashed, random matrices of the shape."""
    axis, x = str(table.attrs["axis"]), _places(table["step"].values, str(table.attrs["axis"]))
    panels = {name: title for name, title in PANELS.items() if name in table}
    kinds = [kind for kind in table["kind"].values if not str(kind).endswith("_head")][: len(CATEGORIES)]
    figure = make_subplots(
        len(panels), 1, shared_xaxes=True, subplot_titles=list(panels.values()), vertical_spacing=0.07
    )
    for row, name in enumerate(panels, 1):
        for kind, color in zip(kinds, CATEGORIES, strict=False):
            here = table.sel(kind=kind)
            figure.add_trace(_line(x, here[name].values, str(kind), color, showlegend=row == 1), row, 1)
            if f"{name}_null" in table:
                figure.add_trace(_dashed(x, here[f"{name}_null"].values, str(kind), color, showlegend=False), row, 1)
    _time_axis(figure, axis, len(panels))
    return styled(figure, "Spectra over training, means over layers (dashed: random matrices)", 240 * len(panels) + 80)
