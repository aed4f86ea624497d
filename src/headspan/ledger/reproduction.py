"""The published numbers of arXiv 2601.10266 beside those computed from the weights, line by line.

A number agrees if it rounds to the digits printed. The values are those of the paper's figures 1, 5 and 8 for GPT-2
small: weights as stored, float64, pairs whose source layer comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from headspan.dims import COMPOSING
from headspan.errors import HeadspanError
from headspan.heads import Heads
from headspan.lenses.affinity import lens as affinity
from headspan.lenses.affinity.class_detection import class_counts
from headspan.lenses.affinity.edges import edges, pairing_node, top_edges
from headspan.lenses.affinity.head_classes import head_classes
from headspan.lenses.affinity.hubs import hub_scores, ranked_hubs

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


def reproduced(paper: str, heads: Heads) -> list[Line]:
    """Every published value beside the computed one."""
    if paper != PAPER:
        raise HeadspanError(f"headspan reproduces {PAPER}, not {paper!r}")
    shape = (heads.n_layers, heads.n_heads, heads.d_model, heads.d_head)
    if shape != SHAPE or heads.checkpoint.family != "gpt2" or heads.fold != "none":
        raise HeadspanError(f"{PAPER} is about GPT-2 small (12 layers x 12 heads, d_model 768), weights as stored")
    result = affinity.compute(heads, pairings="all", draws=2)
    return [*_kernels(result), *_cut_offs(result), *_graphs(result, heads), *_hubs(result)]


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _kernels(result: xr.DataTree) -> list[Line]:
    nodes = {pairing: pairing_node(result, pairing).sel(metric="pk") for pairing in result.children}
    kl = {pairing: float(node["kl"]) for pairing, node in nodes.items()}
    oq = nodes["OQ"]
    return [
        Line("ordered pairs per pairing", "9504", str(int(oq["n_pairs"]))),
        Line("kernel by chance, mean", "5.3333", _number(float(oq["chance_mean"]), 4)),
        Line("kernel by chance, standard deviation", "0.10796", _number(float(oq["chance_std"]), 5)),
        Line("mean kernel of QQ", "8.467", _number(float(nodes["QQ"]["mean"]), 3)),
        Line("mean kernel of VO", "5.664", _number(float(nodes["VO"]["mean"]), 3)),
        Line("KL(random || observed) of QQ", "2.876", _number(kl["QQ"], 3)),
        Line("KL(random || observed) of VO", "1.149", _number(kl["VO"], 3)),
        Line("pairing with the largest KL", "QQ", max(kl, key=lambda pairing: kl[pairing])),
        Line("pairing with the smallest KL", "VO", min(kl, key=lambda pairing: kl[pairing])),
    ]


def _cut_offs(result: xr.DataTree) -> list[Line]:
    published = {"pk": ("12.3", "10.8", "10.4"), "cs": ("0.063", "0.062", "0.057")}
    digits = {"pk": 1, "cs": 3}
    return [
        Line(
            f"top 3 % cut-off of {metric} through {pairing}",
            printed,
            _number(float(np.quantile(edges(result, pairing, metric)["score"], 0.97)), digits[metric]),
        )
        for metric, row in published.items()
        for pairing, printed in zip(COMPOSING, row, strict=True)
    ]


def _graphs(result: xr.DataTree, heads: Heads) -> list[Line]:
    counts = class_counts(result, head_classes(PAPER, heads)).set_index("metric")
    published = {"pk": ("52", "24", "28"), "cs": ("46", "16", "30")}
    names = {"nodes": "heads in", "in_class": "heads in a class in", "out_of_class": "heads in no class in"}
    lines = [
        Line(f"{words} the top-20 graphs by {metric}", printed, str(int(counts.loc[metric, column])))
        for metric, row in published.items()
        for (column, words), printed in zip(names.items(), row, strict=True)
    ]
    strongest = top_edges(result, "OK", "pk", 3)
    computed = ", ".join(f"{src} -> {dst}" for src, dst in zip(strongest["src"], strongest["dst"], strict=True))
    return [*lines, Line("strongest kernels through OK", "L4H11 -> L5H1, L4H7 -> L5H1, L4H11 -> L6H9", computed)]


def _hubs(result: xr.DataTree) -> list[Line]:
    words = {"kernel": "mean incoming plus outgoing kernel", "degree": "degree in the top-20 graphs"}
    return [
        Line(f"first hub by {text}", "L4H7", str(ranked_hubs(hub_scores(result, definition))["head"][0]))
        for definition, text in words.items()
    ]
