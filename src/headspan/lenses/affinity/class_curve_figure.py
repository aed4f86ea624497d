"""Precision-recall curves of the head classes, drawn: kernel beside composition score."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.errors import one_line
from headspan.lenses.affinity.class_curves import ANY, class_curves
from headspan.lenses.affinity.pairing_figures import METRIC_NAMES, shown_metrics
from headspan.theme import CATEGORIES, styled

NAMED = 24
"""Longer names of classes are cut in the legend."""


def precision_recall(result: xr.DataTree, classes: Mapping[str, str]) -> go.Figure | None:
    """One panel per score, one line per class; dotted at the share of heads in any. None without a curve."""
    curves = class_curves(result, classes)
    metrics = [metric for metric in shown_metrics(result) if any(curve.metric == metric for curve in curves)]
    if not metrics:
        return None
    figure = make_subplots(
        1, len(metrics), subplot_titles=[METRIC_NAMES[metric] for metric in metrics], shared_yaxes=True
    )
    targets = list(dict.fromkeys(curve.target for curve in curves))
    for curve in curves:
        place = targets.index(curve.target)
        name = escape(one_line(curve.target))[:NAMED]
        line = {"color": CATEGORIES[place % len(CATEGORIES)], "width": 3 if curve.target == ANY else 1.8, "shape": "hv"}
        trace = go.Scatter(x=curve.recall, y=curve.precision, mode="lines", line=line, name=name, legendgroup=name)
        trace.update(
            showlegend=curve.metric == metrics[0],
            hovertemplate=f"recall %{{x:.2f}}, precision %{{y:.2f}}<extra>{name}: average precision "
            f"{curve.average_precision:.2f}, by chance {curve.base_rate:.2f}</extra>",
        )
        figure.add_trace(trace, 1, metrics.index(curve.metric) + 1)
        if curve.target == ANY:
            column = metrics.index(curve.metric) + 1
            figure.add_hline(
                curve.base_rate, line={"color": line["color"], "dash": "dot", "width": 1}, row=1, col=column
            )
    figure.update_xaxes(title_text="recall", range=[0, 1.02])
    figure.update_yaxes(range=[0, 1.04])
    figure.update_yaxes(title_text="precision", col=1)
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Do heads with a large affinity belong to the classes? Dotted: by chance", 440)
