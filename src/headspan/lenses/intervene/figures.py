"""Interventions, drawn: entropy layer by layer under each setting, and everything against alpha."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.lenses.intervene.map_figures import map_figures
from headspan.result import Result
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREEN, ORANGE, VERMILION, styled

DASHES = ("solid", "dash", "dot", "dashdot")
BEHIND = {"Entropy by layer": ("relative_entropy", "averaged_relative_entropy")}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    grid = result.grid()
    drawn = {"Entropy by layer": entropy_by_layer(grid)}
    if int(np.isfinite(grid["alpha"].values).sum()) > 2:
        drawn["Against alpha"] = alpha_sweep(grid)
    if "mean_map" in grid:
        drawn |= map_figures(grid)
    return drawn


def entropy_by_layer(result: xr.Dataset) -> go.Figure:
    """Relative entropy per layer under each setting: of single heads, and of their mean pattern."""
    titles = ("mean of the heads' entropies", "entropy of the heads' mean pattern")
    figure = make_subplots(1, 2, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.05)
    panels = (result["relative_entropy"].mean("head"), result["averaged_relative_entropy"])
    for place, name in enumerate(result["setting"].values):
        line = {"color": CATEGORIES[place % len(CATEGORIES)], "dash": DASHES[place // len(CATEGORIES) % len(DASHES)]}
        for column, values in enumerate(panels, start=1):
            trace = go.Scatter(x=result["layer"].values, y=values.sel(setting=name).values, name=str(name))
            trace.update(mode="lines+markers", line=line, showlegend=column == 1, legendgroup=str(name))
            figure.add_trace(trace.update(hovertemplate=f"{name}, layer %{{x}}: %{{y:.3f}}<extra></extra>"), 1, column)
    figure.add_hline(y=1, line={"color": CHANCE, "dash": "dot"})
    figure.update_xaxes(title_text="layer", dtick=1 if result.sizes["layer"] < 16 else None)
    figure.update_yaxes(title_text="relative entropy", range=[-0.02, 1.05], row=1, col=1)
    rows = -(-result.sizes["setting"] // 4)
    figure.update_layout(legend={"y": -0.22})
    return styled(figure, "Entropy of attention, layer by layer; 1 is uniform", 380 + 22 * rows)


def alpha_sweep(result: xr.Dataset) -> go.Figure:
    """Entropy, self mass and argmax mass against alpha on the left, perplexity on the right where the model has one."""
    chosen = result.isel(setting=np.flatnonzero(np.isfinite(result["alpha"].values)))
    chosen = chosen.isel(setting=np.argsort(chosen["alpha"].values))
    means = chosen[["relative_entropy", "self_mass", "argmax_mass"]].mean(("layer", "head"))
    scored = bool(chosen["perplexity"].notnull().any())
    titles = ("attention", "perplexity of the prompt")[: 1 + scored]
    figure = make_subplots(1, len(titles), subplot_titles=titles, horizontal_spacing=0.1)
    lines = (
        ("relative entropy", means["relative_entropy"], BLUE, "solid"),
        ("of the heads' mean pattern", chosen["averaged_relative_entropy"].mean("layer"), BLUE, "dash"),
        ("mass on the row's largest", means["argmax_mass"], VERMILION, "solid"),
        ("mass on the token itself", means["self_mass"], GREEN, "solid"),
    )
    for name, values, color, dash in lines:
        trace = go.Scatter(x=chosen["alpha"].values, y=values.values, name=name, mode="lines+markers")
        figure.add_trace(trace.update(line={"color": color, "dash": dash}), 1, 1)
    figure.add_hline(y=float(result["self_mass_null"]), line={"color": CHANCE, "dash": "dot"}, row=1, col=1)
    if scored:
        perplexity = go.Scatter(x=chosen["alpha"].values, y=chosen["perplexity"].values, mode="lines+markers")
        figure.add_trace(perplexity.update(line={"color": ORANGE}, showlegend=False, name="perplexity"), 1, 2)
    # Written out: a logarithmic axis would name its ticks 2 and 5 between the powers of ten.
    ticks = [alpha for alpha in (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0) if _within(alpha, chosen["alpha"].values)]
    figure.update_xaxes(type="log", title_text="alpha", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_yaxes(range=[-0.02, 1.05], row=1, col=1)
    if scored:
        figure.update_yaxes(type="log", row=1, col=2)
    figure.update_layout(legend={"y": -0.22})
    return styled(figure, "Singular values of W<sub>Q</sub> and W<sub>K</sub> times alpha; gray: uniform", 400)


def _within(alpha: float, alphas: np.ndarray) -> bool:
    return bool(alphas.min() * 0.99 <= alpha <= alphas.max() * 1.01)
