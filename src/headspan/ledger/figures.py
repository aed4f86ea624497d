"""The claims ledger, drawn: how many claims of each document hold, and the curves of two chapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go
import torch

from headspan.distributions import entropy_study, path_study, random_layers, token_course
from headspan.distributions.token_course import TokenCourse
from headspan.ledger import Examination
from headspan.ledger.mixture_figure import entropy_over_variance, token_courses
from headspan.ledger.slerp_figure import divergence_along_paths
from headspan.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, styled

COLOURS = {
    "holds": GREEN,
    "asymptotic": SKY,
    "approximate": BLUE,
    "wrong": VERMILION,
    "observational": PURPLE,
    "not reproduced": ORANGE,
}
RADII = (0.5, 1.0, 3.0, 10.0)
SIZE, LENGTH, DEPTH = 32, 16, 10


def figures(examinations: Sequence[Examination]) -> dict[str, go.Figure]:
    """The ledger as bars, KL along great circles with its cosine, tokens under layers, entropy over variance."""
    return {
        "Claims by document": claims_by_document(examinations),
        "KL along great circles": divergence_along_paths([path_study(64, radius, seed=0) for radius in RADII]),
        "How tokens become alike": token_courses(_courses(), "Tokens under random attention layers"),
        "Entropy over the variance of logits": entropy_over_variance(entropy_study((16, 256, 4096))),
    }


def claims_by_document(examinations: Sequence[Examination]) -> go.Figure:
    """Claims of each document by what became of them; a check that failed or was skipped is hatched."""
    figure = go.Figure()
    documents = list(dict.fromkeys(one.claim.document for one in examinations))
    counts = Counter((one.claim.document, one.claim.status, one.verdict == "pass") for one in examinations)
    for status in dict.fromkeys(one.claim.status for one in examinations):
        for passed in (True, False):
            values = [counts[document, status, passed] for document in documents]
            if not any(values):
                continue
            name = status if passed else f"{status}, not checked or failed"
            marker = {"color": COLOURS.get(status, GREY), "pattern": {"shape": "" if passed else "/"}}
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
