"""The mixing lens drawn: a quantity over depth, learned weights beside random ones."""

from __future__ import annotations

import plotly.graph_objects as go
import xarray as xr
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from headspan.lenses.mixing.schema import SKIPS
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, ORDERED, styled

TITLES = {
    "cosine": "Mean cosine by depth",
    "effective_rank": "Effective rank by depth",
    "information": "Information between neighbors by depth",
}
AXES = {"cosine": "mean cosine", "effective_rank": "effective rank", "information": "nats"}
WHOLE = "The whole model"
BEHIND = {**{title: (name,) for name, title in TITLES.items()}, WHOLE: ("cosine", "effective_rank")}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""


def figures(result: Result) -> dict[str, go.Figure]:
    """One figure for each quantity, and the running model where there is one."""
    found = result.dataset()
    drawn = {title: depth_figure(found, name, title) for name, title in TITLES.items()}
    if "run" in result:
        drawn[WHOLE] = run_figure(result.dataset("run"))
    return drawn


def depth_figure(found: xr.Dataset, name: str, title: str) -> go.Figure:
    """A panel without and one with skips; a color for each inverse temperature, dashes for random weights."""
    figure = make_subplots(1, 2, subplot_titles=[skip.capitalize() for skip in SKIPS], shared_yaxes=True)
    betas = [float(beta) for beta in found["inverse_temperature"].values]
    colors = sample_colorscale(ORDERED, [i / max(len(betas) - 1, 1) for i in range(len(betas))])
    for column, skip in enumerate(SKIPS, start=1):
        for beta, color in zip(betas, colors, strict=True):
            curve = found.sel(skip=skip, inverse_temperature=beta)
            for suffix, dash, words in (("", "solid", "learned"), ("_null", "dot", "random")):
                figure.add_trace(
                    _curve(curve[f"{name}{suffix}"], color, dash, f"{words}, logits x {beta:g}", column == 1), 1, column
                )
    figure.update_xaxes(title_text="layers passed", dtick=max(1, (found.sizes["depth"] - 1) // 8))
    figure.update_yaxes(title_text=AXES[name], col=1)
    figure.update_layout(legend_y=-0.28)
    return styled(figure, title, 440)


def run_figure(node: xr.Dataset) -> go.Figure:
    """Cosine and effective rank of the whole model beside those of its untrained twin."""
    figure = make_subplots(1, 2, subplot_titles=["Mean cosine", "Effective rank"])
    for column, name in enumerate(("cosine", "effective_rank"), start=1):
        for suffix, color, words in (("", BLUE, "trained"), ("_null", CHANCE, "untrained twin")):
            figure.add_trace(_curve(node[f"{name}{suffix}"], color, "solid", words, column == 1), 1, column)
    figure.update_xaxes(title_text="layers passed", dtick=max(1, (node.sizes["depth"] - 1) // 8))
    figure.update_layout(legend_y=-0.28)
    return styled(figure, "The whole model; the last point stands behind the final norm", 400)


def _curve(values: xr.DataArray, color: str, dash: str, name: str, shown: bool) -> go.Scatter:
    return go.Scatter(
        x=values["depth"].values,
        y=values.values,
        mode="lines+markers",
        line={"color": color, "dash": dash, "width": 2},
        marker={"size": 5},
        name=name,
        legendgroup=name,
        showlegend=shown,
        hovertemplate=f"{name}, after %{{x}} layers: %{{y:.3f}}<extra></extra>",
    )
