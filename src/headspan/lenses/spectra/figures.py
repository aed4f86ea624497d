"""Spectra of weights, drawn: histograms with the law of random matrices, summaries by layer, trace of W_QK."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import torch
import xarray as xr
from jaxtyping import Float
from plotly.subplots import make_subplots

from headspan.dims import LAYER
from headspan.lenses.spectra.curve_figure import layer_curves
from headspan.lenses.spectra.kinds import MLP, TABLES, WHOLE
from headspan.result import Result
from headspan.statistics import mp_cdf
from headspan.theme import BLUE, CHANCE, ORANGE, SEQUENTIAL, around_chance, styled

BINS = 48
REACH = 2.5
BEHIND = {
    "Base alignment": ("alignment/trace", "trace_z", "trace_share"),
    "Symmetric part of W_QK": ("alignment/symmetric_share", "positive_mass"),
}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""


def _subscript(kind: str) -> str:
    return f"W<sub>{kind.removeprefix('W_')}</sub>"


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    drawn: dict[str, go.Figure] = {}
    if _layered(result):
        # First, because the histograms below it are as tall as there are kinds of matrices.
        drawn["Spectra by layer"] = layer_summaries(result)
    if _panels(result):
        drawn["Singular values and the law of random matrices"] = value_histograms(result)
    if _layered(result):
        drawn["Squared singular values of all layers"] = layer_curves(result)
    if "alignment" in result and result["alignment"].trace_z.notnull().any():
        drawn["Base alignment"] = alignment_map(result)
        drawn["Symmetric part of W_QK"] = symmetry_maps(result)
    return drawn


def _layered(result: Result) -> list[str]:
    return [name for name in (*WHOLE, *MLP) if name in result]


def _panels(result: Result) -> list[tuple[str, int, str]]:
    """Kind, place and title of the matrices to draw: first, middle and last layer of each kind, then tables."""
    panels = []
    for name in _layered(result):
        layers = result[name][LAYER].values
        for place in dict.fromkeys((0, len(layers) // 2, len(layers) - 1)):
            panels.append((name, place, f"{_subscript(name)} of layer {layers[place]}"))
    return panels + [(name, 0, _subscript(name)) for name in TABLES if name in result]


def value_histograms(result: Result) -> go.Figure:
    """Singular values of chosen matrices, with the law at the scale of the bulk and at that of the initialization."""
    panels = _panels(result)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    drawn = [histogram(result, name, place) for name, place, _ in panels]
    titles = [
        f"{title}: {found.beyond} beyond the axis, to {found.largest:.3g}" if found.beyond else title
        for (*_, title), found in zip(panels, drawn, strict=True)
    ]
    figure = make_subplots(rows, columns, subplot_titles=titles, vertical_spacing=0.3 / rows, horizontal_spacing=0.07)
    for number, found in enumerate(drawn):
        where = (number // columns + 1, number % columns + 1)
        hover = "%{x:.3g}: %{y:.1f}"
        bars = go.Bar(x=found.centers, y=found.counts, marker_color=BLUE, name="this matrix", legendgroup="model")
        bars.update(showlegend=number == 0, hovertemplate=f"{hover}<extra>this matrix</extra>")
        figure.add_trace(bars, *where)
        for values, color, label in (
            (found.fitted, CHANCE, "random matrix, scale of the bulk"),
            (found.initial, ORANGE, "random matrix, scale at initialization"),
        ):
            line = go.Scatter(x=found.centers, y=values, mode="lines", name=label, legendgroup=label)
            line.update(line={"color": color, "width": 2.5}, showlegend=number == 0)
            line.update(hovertemplate=f"{hover}<extra>{label}</extra>")
            figure.add_trace(line, *where)
        # The law at a small initial scale is a spike that would flatten everything else.
        top = float(np.nanmax([found.counts.max(), np.nanmax(found.fitted, initial=0.0)]))
        figure.update_yaxes(range=[0, 1.08 * top], row=where[0], col=where[1])
    figure.update_xaxes(rangemode="tozero")
    figure.update_layout(bargap=0, legend={"y": -0.18 / rows})
    return styled(figure, "Singular values, and those expected of random matrices", 110 + 190 * rows)


def layer_summaries(result: Result) -> go.Figure:
    """Four heat maps, layer by kind of matrix: spikes, distance from the law, effective rank, energy."""
    kinds = _layered(result)
    layers = [str(layer) for layer in result[kinds[0]][LAYER].values]
    panels = {
        "Spikes, % of singular values": ("spike_share", "{:.1f}"),
        "Distance from the law over its expectation": ("ks_ratio", "{:.0f}"),
        "Effective rank, % of the expected": ("rank_ratio", "{:.0f}"),
        "log<sub>10</sub> energy over initialization": ("log_energy", "{:.2f}"),
    }
    figure = make_subplots(2, 2, subplot_titles=list(panels), horizontal_spacing=0.16, vertical_spacing=0.14)
    for number, (field, form) in enumerate(panels.values()):
        z = np.stack([_summary(result.dataset(kind), field) for kind in kinds], axis=1)
        row, column = number // 2 + 1, number % 2 + 1
        bar = {"len": 0.43, "thickness": 12, "x": 0.43 if column == 1 else 1.01, "y": 0.79 if row == 1 else 0.21}
        axis = f"coloraxis{number + 1 if number else ''}"
        panel = go.Heatmap(z=z, x=[_subscript(kind) for kind in kinds], y=layers, coloraxis=axis, xgap=1, ygap=1)
        panel.update(hovertemplate=f"layer %{{y}}, %{{x}}: %{{z{form[1:-1]}}}<extra></extra>", hoverongaps=False)
        figure.add_trace(panel, row, column)
        scale = _around_zero(z) if field == "log_energy" else {"colorscale": SEQUENTIAL}
        figure.update_layout({axis: {**scale, "colorbar": {"outlinewidth": 0, **bar}}})
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category", ticks="", nticks=13)
    figure.update_yaxes(title_text="layer", col=1)
    figure.update_xaxes(showgrid=False, ticks="")
    return styled(figure, "Every whole matrix against random ones of its shape", 180 + 2 * max(180, 22 * len(layers)))


def _around_zero(z: np.ndarray) -> dict[str, object]:
    known = z[np.isfinite(z)]
    axis = around_chance(float(known.min()), 0.0, float(known.max())) if len(known) else {}
    return {key: value for key, value in axis.items() if key != "colorbar"}


def _summary(node: xr.Dataset, field: str) -> np.ndarray:
    """[layer]: one number per matrix, on a scale that different shapes share."""
    fields: dict[str, xr.DataArray] = {
        "spike_share": 100 * node["spikes"] / node.sizes["rank"],
        "ks_ratio": node["ks"] / node["ks_null"],
        "rank_ratio": 100 * node["effective_rank"] / node["effective_rank_null"],
        "log_energy": xr.apply_ufunc(np.log10, node["energy_ratio"].where(node["energy_ratio"] > 0)),
    }
    values: np.ndarray = fields[field].values
    return values


def alignment_map(result: Result) -> go.Figure:
    """z-score of the trace of W_QK, layer by head, and of whole layers."""
    node, layers = result.grid("alignment"), result.dataset("layer")
    figure = make_subplots(
        1, 2, column_widths=[0.72, 0.28], horizontal_spacing=0.2, subplot_titles=("Heads", "Whole layers")
    )
    factors, product = (node.sel(null=null) for null in ("factors", "product"))
    z, names = factors["trace_z"].values, [str(layer) for layer in node[LAYER].values]
    beside = (node["trace"], factors["trace_null_sd"], node["trace_share"], product["trace_z"])
    more = np.stack([values.values for values in beside], axis=-1)
    hover = (
        "L%{y}H%{x}: z = %{z:.1f}<br>trace %{customdata[0]:.3g}, sd under the null %{customdata[1]:.2g}<br>"
        "%{customdata[2]:+.2f} of the nuclear norm, z under the product null = %{customdata[3]:.1f}<extra></extra>"
    )
    panel = go.Heatmap(z=z, x=node["head"].values, y=names, customdata=more, hovertemplate=hover, xgap=1, ygap=1)
    figure.add_trace(panel.update(coloraxis="coloraxis", hoverongaps=False), 1, 1)
    bars = go.Bar(y=names, x=layers["trace_z"].values, orientation="h", marker_color=BLUE, showlegend=False)
    figure.add_trace(bars.update(hovertemplate="layer %{y}: z = %{x:.1f}<extra></extra>"), 1, 2)
    figure.add_vline(x=0, line={"color": CHANCE, "width": 2}, row=1, col=2)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, ticks="", nticks=13)
    figure.update_yaxes(title_text="layer", col=1)
    figure.update_xaxes(showgrid=False, title_text="head", ticks="", col=1)
    figure.update_xaxes(title_text="z", col=2)
    axis = around_chance(float(np.nanmin(z)), 0.0, float(np.nanmax(z)))
    bar = {**dict(axis["colorbar"]), "x": 0.59, "thickness": 12, "outlinewidth": 0}  # type: ignore[call-overload]
    figure.update_layout(coloraxis={**axis, "colorbar": bar})
    title = "Do queries match keys like themselves? z-score of the trace of W<sub>QK</sub>"
    return styled(figure, title, 150 + max(220, 24 * len(names)))


def symmetry_maps(result: Result) -> go.Figure:
    """Share of the symmetric part, and the positive share of its eigenvalues, layer by head."""
    node = result.grid("alignment")
    titles = ("Energy in the symmetric part", "Positive share of its eigenvalues")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.24)
    names = [str(layer) for layer in node[LAYER].values]
    for column, field in enumerate(("symmetric_share", "positive_mass"), start=1):
        z, null = node[field].values, float(node[f"{field}_null"])
        axis, colors = (
            f"coloraxis{column if column > 1 else ''}",
            around_chance(float(np.nanmin(z)), null, float(np.nanmax(z))),
        )
        panel = go.Heatmap(z=z, x=node["head"].values, y=names, coloraxis=axis, xgap=1, ygap=1, hoverongaps=False)
        panel.update(hovertemplate=f"L%{{y}}H%{{x}}: %{{z:.3f}}<br>expected {null:.3f}<extra></extra>")
        figure.add_trace(panel, 1, column)
        bar = {**dict(colors["colorbar"]), "x": 0.39 if column == 1 else 1.01, "thickness": 12}  # type: ignore[call-overload]
        figure.update_layout({axis: {**colors, "colorbar": {**bar, "outlinewidth": 0}}})
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, ticks="", nticks=13)
    figure.update_yaxes(title_text="layer", col=1)
    figure.update_xaxes(showgrid=False, title_text="head", ticks="")
    return styled(
        figure,
        "Symmetric part of W<sub>QK</sub>: like attracts like where it is positive",
        150 + max(220, 24 * len(names)),
    )


@dataclass(frozen=True)
class Histogram:
    """Counts of one matrix's singular values, and those expected with the fitted and with the initial scale.

    `beyond` singular values lie above the last bin, the largest of all at `largest`.
    """

    centers: Float[np.ndarray, " bins"]
    counts: Float[np.ndarray, " bins"]
    fitted: Float[np.ndarray, " bins"]
    initial: Float[np.ndarray, " bins"]
    beyond: int
    largest: float


def histogram(result: Result, kind: str, place: int = 0, bins: int = BINS) -> Histogram:
    """Of the matrix at `place` along the layers of a whole kind, or of a table.

    Bins end at `REACH` times the edge of the bulk at the latest, so that a few large values do not flatten the rest.
    Expected counts are NaN where no scale could be fitted; they add up to min(rows, columns).
    """
    node = result.dataset(kind)
    here = node.isel(layer=place) if LAYER in node.dims else node
    values, edge = here["singular_value"].values, float(here["edge"])
    top = max(min(float(values[0]), REACH * edge), edge) if edge > 0 else float(values[0])
    edges = np.linspace(0.0, top * 1.0001 if top > 0 else 1.0, bins + 1)

    def expected(sigma: float) -> np.ndarray:
        if not sigma > 0:
            return np.full(bins, np.nan)
        share = mp_cdf(torch.as_tensor(edges / sigma), int(node["rows"]), int(node["columns"])).numpy()
        return np.diff(share) * len(values)

    return Histogram(
        centers=(edges[1:] + edges[:-1]) / 2,
        counts=np.histogram(values, edges)[0].astype(float),
        fitted=expected(float(here["sigma"])),
        initial=expected(float(here["sigma_init"])),
        beyond=int((values > edges[-1]).sum()),
        largest=float(values[0]),
    )
