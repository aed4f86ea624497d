"""Softmax distributions along great circles, drawn: divergence beside its cosine, single pairs and their average."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headspan.distributions.studies import PathStudy
from headspan.theme import BLUE, CHANCE, ORANGE, SKY, styled


def divergence_along_paths(studies: Sequence[PathStudy]) -> go.Figure:
    """A panel for each sphere: KL from the end of the path, single pairs with their fits, the average with its law."""
    columns = min(2, len(studies))
    rows = -(-len(studies) // columns)
    titles = [
        f"radius {study.radius:.3g}, n = {study.n}: median residual {study.residual:.2%} of range" for study in studies
    ]
    figure = make_subplots(rows, columns, subplot_titles=titles, horizontal_spacing=0.12, vertical_spacing=0.36 / rows)
    for place, study in enumerate(studies):
        row, column = place // columns + 1, place % columns + 1
        for curve, fitted in zip(study.kl, study.fit.curve, strict=True):
            line = go.Scatter(x=study.t.numpy(), y=curve.numpy(), line={"color": SKY, "width": 2}, name="single pair")
            figure.add_trace(_one_in_legend(line, "pair"), row, column)
            dotted = {"color": ORANGE, "width": 1.5, "dash": "dot"}
            cosine = go.Scatter(x=study.t.numpy(), y=fitted.numpy(), line=dotted, name="its cosine")
            figure.add_trace(_one_in_legend(cosine, "fit"), row, column)
        mean = go.Scatter(x=study.t.numpy(), y=study.mean.numpy(), line={"color": BLUE, "width": 3}, name="average")
        figure.add_trace(_one_in_legend(mean, "mean"), row, column)
        law = go.Scatter(x=study.t.numpy()[::2], y=study.law.numpy()[::2], mode="markers", name="its law, c (1 - cos)")
        law.update(marker={"color": CHANCE, "size": 6, "symbol": "circle-open", "line": {"width": 1.5}})
        figure.add_trace(_one_in_legend(law, "law"), row, column)
    _name_once(figure)
    figure.update_traces(hovertemplate="t = %{x:.2f}: %{y:.4g} nats<extra>%{fullData.name}</extra>")
    figure.update_xaxes(title_text="t, from v to w", row=rows)
    figure.update_yaxes(title_text="KL, nats", col=1)
    figure.update_yaxes(rangemode="tozero", exponentformat="power")
    figure.update_layout(legend={"y": -0.24 / rows})
    return styled(figure, "KL(softmax w ‖ softmax of the path), from v to w on a sphere", 150 + 260 * rows)


def _one_in_legend(trace: go.Scatter, group: str) -> go.Scatter:
    lines = "lines" if trace.mode is None else trace.mode
    return trace.update(legendgroup=group, mode=lines)


def _name_once(figure: go.Figure) -> None:
    """Only the first trace of each kind has an entry in the legend; a click on it works on all."""
    seen: set[str] = set()
    for trace in figure.data:
        trace.showlegend = trace.legendgroup not in seen
        seen.add(trace.legendgroup)
