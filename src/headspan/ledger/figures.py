"""The claims ledger, drawn: how many claims of each document hold, and the curves behind two chapters.

The curves are the divergence of softmax along great circles, single pairs beside their average; how alike tokens become
under attention layers; and the entropy of attention over the variance of its logits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from headspan.distributions import entropy_study, path_study, random_layers, token_course
from headspan.distributions.studies import EntropyStudy, PathStudy
from headspan.distributions.token_course import TokenCourse
from headspan.finding import percent
from headspan.ledger import Examination
from headspan.theme import BLUE, CATEGORIES, CHANCE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, styled

COLORS = {
    "holds": GREEN,
    "asymptotic": SKY,
    "approximate": BLUE,
    "wrong": VERMILION,
    "observational": PURPLE,
    "not reproduced": ORANGE,
}
RADII = (0.5, 1.0, 3.0, 10.0)
SIZE, LENGTH, DEPTH = 32, 16, 10
PANELS = {
    "Mean cosine of tokens": ("cosine", "cosine"),
    "What sets tokens apart, |X - mean| / |X|": ("residual", "share, logarithmic"),
    "Effective rank of the sequence": ("rank", "dimensions"),
    "Entropy of attention": ("attention_entropy", "share of log n"),
}
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
FLOOR = 1e-16
"""Residuals below rounding are all the same nothing."""


def figures(examinations: Sequence[Examination]) -> dict[str, go.Figure]:
    """The ledger as bars, KL along great circles with its cosine, tokens under layers, entropy over variance."""
    return {
        "Claims by document": claims_by_document(examinations),
        "KL along great circles": divergence_along_paths([path_study(64, radius, seed=0) for radius in RADII]),
        "How tokens become alike": token_courses(_courses(), "Tokens under random attention layers"),
        "Entropy over the variance of logits": entropy_over_variance(entropy_study((16, 256, 4096))),
    }


def claims_by_document(examinations: Sequence[Examination]) -> go.Figure:
    """Claims of each document by what became of them; a check that did not pass is hatched."""
    figure = go.Figure()
    documents = list(dict.fromkeys(one.claim.document for one in examinations))
    counts = Counter((one.claim.document, one.claim.status, one.verdict == "pass") for one in examinations)
    for status in dict.fromkeys(one.claim.status for one in examinations):
        for passed in (True, False):
            values = [counts[document, status, passed] for document in documents]
            if not any(values):
                continue
            name = status if passed else f"{status}, not passed"
            marker = {"color": COLORS.get(status, GREY), "pattern": {"shape": "" if passed else "/"}}
            bars = go.Bar(y=documents, x=values, name=name, orientation="h", marker=marker)
            figure.add_trace(bars.update(hovertemplate="document %{y}: %{x} " + name + "<extra></extra>"))
    figure.update_layout(barmode="stack", legend_y=-0.25)
    figure.update_yaxes(type="category", autorange="reversed", title_text="document")
    figure.update_xaxes(title_text="claims")
    return styled(figure, "What became of the claims", 360)


def _courses() -> dict[str, TokenCourse]:
    """Sampled sequences through random layers: attention alone, half of it a skip, and that with a norm."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(4, LENGTH, SIZE, generator=generator, dtype=torch.float64)
    layers = random_layers(SIZE, DEPTH, generator)
    return {
        "attention alone": token_course(X, layers),
        "half a skip": token_course(X, layers, beta=0.5),
        "half a skip, norm": token_course(X, layers, beta=0.5, norm=True),
    }


def divergence_along_paths(studies: Sequence[PathStudy]) -> go.Figure:
    """A panel for each sphere: KL from the end of the path, single pairs with their fits, the average with its law."""
    columns = min(2, len(studies))
    rows = -(-len(studies) // columns)
    titles = [
        f"radius {study.radius:.3g}, n = {study.n}: median residual {percent(study.residual, 2)} of range"
        for study in studies
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
        color = CATEGORIES[number % len(CATEGORIES)]
        exact = go.Scatter(x=study.variance.numpy(), y=study.exact[number].numpy(), name=f"{keys} keys")
        exact.update(mode="lines", line={"color": color, "width": 2.5})
        exact.update(hovertemplate="variance %{x:.3g}: %{y:.3f} of log n<extra>%{fullData.name}</extra>")
        flat = go.Scatter(x=study.variance.numpy(), y=study.flat[number].numpy(), mode="lines", hoverinfo="skip")
        flat.update(line={"color": color, "width": 1, "dash": "dot"}, showlegend=False)
        figure.add_traces([exact, flat])
    law = go.Scatter(x=[None], y=[None], mode="lines", line={"color": CHANCE, "width": 1, "dash": "dot"})
    figure.add_trace(law.update(name="law of many keys, 1 - v / (2 log n)"))
    figure.update_xaxes(type="log", title_text="variance v of the logits", dtick=1, exponentformat="power")
    figure.update_xaxes(range=[math.log10(float(study.variance[0])), math.log10(float(study.variance[-1]))])
    figure.update_yaxes(title_text="mean entropy, share of log n", range=[0, 1.03])
    figure.update_layout(legend={"y": -0.22})
    return styled(figure, "How flat attention is, by the variance of its logits", 420)
