"""The published numbers of arXiv 2601.10266 beside those computed from the weights, line by line.

A number agrees if it rounds to the digits printed. The values are those of the paper's figures 1, 5 and 8 for GPT-2
small: weights as stored, float64, pairs whose source layer comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headspan.dims import COMPOSING
from headspan.errors import HeadspanError
from headspan.heads import Heads
from headspan.heads.classes import head_classes
from headspan.lenses.affinity import affinity
from headspan.lenses.affinity.class_detection import class_counts
from headspan.lenses.affinity.wiring import edges, hub_scores, pairings_of, ranked_hubs
from headspan.result import Result

PAPER = "2601.10266"
SHAPE = (12, 12, 768, 64)


@dataclass(frozen=True)
class Line:
    """One published statement and what came out."""

    statement: str
    published: str
    computed: str

    @property
    def agrees(self) -> bool:
        return self.published == self.computed


def reproduction(paper: str, heads: Heads) -> list[Line]:
    """Every published value beside the computed one."""
    if paper != PAPER:
        raise HeadspanError(f"headspan reproduces {PAPER}, not {paper!r}")
    shape = (heads.n_layers, heads.n_heads, heads.d_model, heads.d_head)
    if shape != SHAPE or heads.checkpoint.family != "gpt2" or heads.fold != "none":
        raise HeadspanError(f"{PAPER} is about GPT-2 small (12 layers x 12 heads, d_model 768), weights as stored")
    result = affinity(heads, pairings="all", draws=2)
    return [*_kernels(result), *_cut_offs(result), *_graphs(result, heads), *_hubs(result)]


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _kernels(result: Result) -> list[Line]:
    kl = {pairing: float(result[pairing].projection_kernel_kl) for pairing in pairings_of(result)}
    means = {pairing: float(result[pairing].projection_kernel_mean) for pairing in ("QQ", "VO")}
    oq = result["OQ"]
    return [
        Line("ordered pairs per pairing", "9504", str(int(oq.n_pairs))),
        Line("expected kernel, mean", "5.3333", _number(float(oq.projection_kernel_mean_null), 4)),
        Line("expected kernel, standard deviation", "0.10796", _number(float(oq.projection_kernel_sd_null), 5)),
        Line("mean kernel of QQ", "8.467", _number(means["QQ"], 3)),
        Line("mean kernel of VO", "5.664", _number(means["VO"], 3)),
        Line("KL(random || observed) of QQ", "2.876", _number(kl["QQ"], 3)),
        Line("KL(random || observed) of VO", "1.149", _number(kl["VO"], 3)),
        Line("pairing with the largest KL", "QQ", max(kl, key=lambda pairing: kl[pairing])),
        Line("pairing with the smallest KL", "VO", min(kl, key=lambda pairing: kl[pairing])),
    ]


def _cut_offs(result: Result) -> list[Line]:
    published = {
        "projection_kernel": ("12.3", "10.8", "10.4"),
        "composition_score": ("0.063", "0.062", "0.057"),
    }
    digits = {"projection_kernel": 1, "composition_score": 3}
    return [
        Line(
            f"top 3 % cut-off of {metric} through {pairing}",
            printed,
            _number(float(np.quantile(edges(result, pairing, metric)["score"], 0.97)), digits[metric]),
        )
        for metric, row in published.items()
        for pairing, printed in zip(COMPOSING, row, strict=True)
    ]


def _graphs(result: Result, heads: Heads) -> list[Line]:
    counts = class_counts(result, head_classes(PAPER, heads)).set_index("metric")
    published = {"projection_kernel": ("52", "24", "28"), "composition_score": ("46", "16", "30")}
    names = {"nodes": "heads in", "in_class": "heads in a class in", "out_of_class": "heads in no class in"}
    lines = [
        Line(f"{words} the top-20 graphs by {metric}", printed, str(int(counts.loc[metric, column])))
        for metric, row in published.items()
        for (column, words), printed in zip(names.items(), row, strict=True)
    ]
    strongest = edges(result, "OK", top=3)
    computed = ", ".join(f"{src} -> {dst}" for src, dst in zip(strongest["src"], strongest["dst"], strict=True))
    return [*lines, Line("strongest kernels through OK", "L4H11 -> L5H1, L4H7 -> L5H1, L4H11 -> L6H9", computed)]


def _hubs(result: Result) -> list[Line]:
    words = {"kernel": "mean incoming plus outgoing kernel", "degree": "degree in the top-20 graphs"}
    return [
        Line(f"first hub by {text}", "L4H7", str(ranked_hubs(hub_scores(result, definition))["head"][0]))
        for definition, text in words.items()
    ]
