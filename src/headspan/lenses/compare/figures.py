"""Two checkpoints side by side, drawn: the drift, edges gained and lost, spectra of whole matrices."""

from __future__ import annotations

import plotly.graph_objects as go
import xarray as xr

from headspan.lenses.affinity.pairing_figures import panels
from headspan.lenses.compare import wiring_pairings
from headspan.lenses.compare.rewiring_figure import kernel_scatter, rewiring_diagram, turned_edges
from headspan.lenses.drift import figures as drift
from headspan.theme import BLUE, CHANCE, styled

LAYERED = ("W_Q", "W_K", "W_V", "W_O", "W_gate", "W_in", "W_out")
MEANT = {"before": CHANCE, "after": BLUE}


def figures(result: xr.DataTree) -> dict[str, go.Figure]:
    """All figures of a comparison; equal checkpoints have the drift's only."""
    drawn = drift.figures(result["drift"].to_dataset())
    if int(result.attrs["identical"]):
        return drawn
    if wiring_pairings(result) and result.attrs["d_head"] < result.attrs["d_model"]:
        if len(turned_edges(result)):
            drawn["Edges gained and lost"] = rewiring_diagram(result)
        drawn["Kernels before and after"] = kernel_scatter(result)
    drawn["Spectra of matrices, layer by layer"] = layer_spectra(result)
    return drawn


def layer_spectra(result: xr.DataTree) -> go.Figure:
    """Effective rank of every whole matrix over layers, before and after, with that of a random matrix."""
    kinds = [kind for kind in LAYERED if kind in result["spectra"].children]
    figure, places = panels([f"W<sub>{kind.removeprefix('W_')}</sub>" for kind in kinds], vertical_spacing=0.14)
    for kind, place in zip(kinds, places, strict=True):
        node = result[f"spectra/{kind}"].to_dataset()
        lines = {name: node[f"effective_rank_{name}"] for name in ("before", "after", "chance")}
        for name, values in lines.items():
            chance = name == "chance"
            line = go.Scatter(
                x=node["layer"].values,
                y=values.broadcast_like(lines["before"]).values,
                mode="lines" if chance else "lines+markers",
                line={
                    "color": MEANT.get(name, CHANCE),
                    "width": 1.5 if chance else 2,
                    "dash": "dot" if chance else "solid",
                },
                name="a random matrix" if chance else name,
                legendgroup=name,
                showlegend=place == places[0],
                hovertemplate=f"layer %{{x}}, {name}: %{{y:.1f}}<extra></extra>",
            )
            figure.add_trace(line, *place)
    figure.update_xaxes(dtick=max(1, result["drift"].sizes["layer"] // 6), title_text="layer", title_standoff=2)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="effective rank", col=1)
    return styled(figure, "Effective rank of every matrix, before and after", 120 + 230 * places[-1][0])
