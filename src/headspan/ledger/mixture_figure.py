"""Tokens under attention layers in a row, drawn: how alike they become, depth by depth; entropy over logit variance."""

from __future__ import annotations

import math
from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headspan.distributions.studies import EntropyStudy
from headspan.distributions.token_course import TokenCourse
from headspan.theme import CATEGORIES, CHANCE, styled

PANELS = {
    "Mean cosine of tokens": ("cosine", "cosine"),
    "What sets tokens apart, |X - mean| / |X|": ("residual", "share, logarithmic"),
    "Effective rank of the sequence": ("rank", "dimensions"),
    "Entropy of attention": ("attention_entropy", "share of log n"),
}
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
FLOOR = 1e-16
"""Residuals below rounding are all the same nothing."""


def token_courses(courses: Mapping[str, TokenCourse], title: str = "Tokens under attention layers") -> go.Figure:
    """Four panels over depth, a line for each named course."""
    figure = make_subplots(2, 2, subplot_titles=list(PANELS), horizontal_spacing=0.14, vertical_spacing=0.16)
    for number, (name, course) in enumerate(courses.items()):
        for place, (field, _) in enumerate(PANELS.values()):
            values = getattr(course, field).numpy()
            depth = list(range(len(course.cosine)))[-len(values) :] if len(values) else []
            y = values.clip(min=FLOOR) if field == "residual" else values
            line = {"color": CATEGORIES[number % len(CATEGORIES)], "dash": DASHES[number % len(DASHES)], "width": 2}
            trace = go.Scatter(x=depth, y=y, mode="lines+markers", line=line, marker={"size": 5}, name=name)
            trace.update(legendgroup=name, showlegend=place == 0)
            trace.update(hovertemplate="layer %{x}: %{y:.4g}<extra>%{fullData.name}</extra>")
            figure.add_trace(trace, place // 2 + 1, place % 2 + 1)
    for place, (_, label) in enumerate(PANELS.values()):
        figure.update_yaxes(title_text=label, row=place // 2 + 1, col=place % 2 + 1)
    figure.update_yaxes(rangemode="tozero", row=2)
    figure.update_yaxes(type="log", exponentformat="power", dtick=4, row=1, col=2)
    figure.update_xaxes(title_text="layers passed", row=2)
    figure.update_xaxes(rangemode="tozero")
    figure.update_layout(legend={"y": -0.12})
    return styled(figure, title, 640)


def entropy_over_variance(study: EntropyStudy) -> go.Figure:
    """The share of log n that the entropy of attention keeps, against the variance of its logits."""
    figure = go.Figure()
    for number, keys in enumerate(study.keys):
        colour = CATEGORIES[number % len(CATEGORIES)]
        exact = go.Scatter(x=study.variance.numpy(), y=study.exact[number].numpy(), name=f"{keys} keys")
        exact.update(mode="lines", line={"color": colour, "width": 2.5})
        exact.update(hovertemplate="variance %{x:.3g}: %{y:.3f} of log n<extra>%{fullData.name}</extra>")
        flat = go.Scatter(x=study.variance.numpy(), y=study.flat[number].numpy(), mode="lines", hoverinfo="skip")
        flat.update(line={"color": colour, "width": 1, "dash": "dot"}, showlegend=False)
        figure.add_traces([exact, flat])
    law = go.Scatter(x=[None], y=[None], mode="lines", line={"color": CHANCE, "width": 1, "dash": "dot"})
    figure.add_trace(law.update(name="law of many keys, 1 - v / (2 log n)"))
    figure.update_xaxes(type="log", title_text="variance v of the logits", dtick=1, exponentformat="power")
    figure.update_xaxes(range=[math.log10(float(study.variance[0])), math.log10(float(study.variance[-1]))])
    figure.update_yaxes(title_text="mean entropy, share of log n", range=[0, 1.03])
    figure.update_layout(legend={"y": -0.22})
    return styled(figure, "How flat attention is, by the variance of its logits", 420)
