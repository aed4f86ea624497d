"""What the lenses measure on the weights of a model that claims are about; `running` has what they show at work.

A lens is run once per checkpoint; the functions below take single numbers from its result.

The published numbers of arXiv 2601.10266 beside those computed from the weights, line by line.

A number agrees if it rounds to the digits printed. The values are those of the paper's figures 1, 5 and 8 for GPT-2
small: weights as stored, float64, pairs whose source layer comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headspan.dims import COMPOSING, HeadLabel
from headspan.errors import HeadspanError
from headspan.heads import Heads
from headspan.heads.classes import head_classes
from headspan.lenses.affinity import affinity
from headspan.lenses.affinity.class_detection import (
    ANY,
    class_counts,
    head_detection,
    head_scores,
    weighted_average_precision,
)
from headspan.lenses.affinity.robustness import agreement
from headspan.lenses.affinity.wiring import edges, hub_scores, pairings_of, ranked_hubs
from headspan.lenses.detect import detect
from headspan.lenses.positions import positions
from headspan.result import Result
from headspan.statistics import MatchedTest, empirical_p_value, matched_draws, matched_test

if TYPE_CHECKING:
    import xarray as xr

    from headspan.checkpoint import Checkpoint


PAPER = "2601.10266"
"""The published classes of GPT-2's heads."""
KEPT = 6
_results: list[tuple[str, Checkpoint, Any]] = []
"""The last few results: lens, checkpoint (which has no hash, so identity is compared), what was measured."""


def measured_once(lens: str, checkpoint: Checkpoint, compute: Callable[[], Any]) -> Any:
    """What `compute` gives for a checkpoint, from memory where it was asked for before."""
    for name, about, result in _results:
        if name == lens and about is checkpoint:
            return result
    _results.append((lens, checkpoint, compute()))
    del _results[:-KEPT]
    return _results[-1][2]


def affinity_of(checkpoint: Checkpoint) -> Result:
    """Affinity of all sixteen pairings, weights as stored."""
    result: Result = measured_once(
        "affinity", checkpoint, lambda: affinity(checkpoint, pairings="all", null="haar", draws=2)
    )
    return result


def _pairing_nodes(result: Result) -> dict[str, xr.Dataset]:
    return {str(pairing): result.dataset(str(pairing)) for pairing in result.data.children}


def kernel_statistics(checkpoint: Checkpoint) -> dict[str, dict[str, float]]:
    """Of the projection kernel, by statistic and pairing: mean, its value under the null, divergence from the null."""
    nodes = _pairing_nodes(affinity_of(checkpoint))
    parts = {"mean": "mean", "null": "mean_null", "divergence": "kl"}
    names = {name: f"projection_kernel_{part}" for name, part in parts.items()}
    return {name: {p: float(node[own]) for p, node in nodes.items()} for name, own in names.items()}


def strongest_pairs(checkpoint: Checkpoint, pairing: str, count: int) -> list[tuple[str, str]]:
    """The pairs of heads with the largest projection kernel."""
    table = edges(affinity_of(checkpoint), pairing, top=count)
    return list(zip(table["src"], table["dst"], strict=True))


def heads_in_graphs(checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    """By metric: heads in the graphs of the 20 strongest pairs of OQ, OK and OV, and those of them in a known class."""
    classes = head_classes(PAPER, checkpoint.heads())
    counts = class_counts(affinity_of(checkpoint), classes).set_index("metric")
    return {metric: (int(row["nodes"]), int(row["in_class"])) for metric, row in counts.iterrows()}


def class_precision(checkpoint: Checkpoint, labels: str) -> dict[tuple[str, str], float]:
    """Average precision of finding heads of any class, by aggregate ("largest", "mean") and metric; and "base rate"."""
    rows = head_detection(affinity_of(checkpoint), head_classes(labels, checkpoint.heads()), draws=2)
    found = {(row.score, row.metric): row.average_precision for row in rows if row.target == ANY}
    return found | {("base rate", ""): next(row.base_rate for row in rows if row.target == ANY)}


def class_lead_p(checkpoint: Checkpoint, labels: str, aggregate: str, draws: int = 4999, seed: int = 0) -> float:
    """How often the kernel leads the composition score by as much, if members are drawn at random in every layer."""
    result, members = affinity_of(checkpoint), tuple(head_classes(labels, checkpoint.heads()).of_head)
    leads: list[np.ndarray] = []
    for metric in ("projection_kernel", "composition_score"):
        names, scores = head_scores(result, metric)
        chosen, layer = np.isin(names, members), np.array([HeadLabel.parse(name).layer for name in names])
        truth = np.concatenate([chosen[None], matched_draws(chosen, layer, draws, seed)])
        order = np.argsort(-scores[aggregate], kind="stable")
        leads.append(weighted_average_precision(truth[:, order], np.ones(truth.shape)))
    lead = leads[0] - leads[1]
    return float(empirical_p_value(lead[0], lead[1:], 1e-12))


def hub_ranks(checkpoint: Checkpoint, heads: list[str], definition: str = "excess") -> list[int]:
    """The ranks of heads among hubs, from 1."""
    order = list(ranked_hubs(hub_scores(affinity_of(checkpoint), definition))["head"])
    return [order.index(head) + 1 for head in heads]


def identity_extremes(checkpoint: Checkpoint, count: int) -> tuple[list[str], list[str]]:
    """The heads with the lowest and with the highest signed identity score, most extreme first."""
    scores = measured_once("detect", checkpoint, lambda: detect(checkpoint, weights_only=True))["identity_weights"]
    order = scores["head"].values[np.argsort(scores.values, kind="stable")]
    return list(order[:count]), list(order[::-1][:count])


def hub_test(checkpoint: Checkpoint, heads: list[str], definition: str = "excess") -> MatchedTest:
    """Do heads rank higher among hubs than others of their layers? Of the ranks counted from the lowest hub."""
    hubs = hub_scores(affinity_of(checkpoint), definition)
    height = float(hubs["n_ranked"]) + 1 - hubs["hub_rank"].values
    return matched_test(height, np.isin(hubs["head"].values, heads), hubs["head_layer"].values)


def agreement_after_folding(checkpoint: Checkpoint) -> dict[str, dict[str, tuple[float, int]]]:
    """By score and pairing: rank correlation with and without LayerNorm folded, and kept ones of the strongest 20."""
    plain, folded = (
        _pairing_nodes(result)
        for result in (
            affinity_of(checkpoint),
            affinity(checkpoint, pairings=COMPOSING, null="haar", draws=2, fold="layernorm"),
        )
    )
    return {
        score: {key: agreement(plain[key][score].values, folded[key][score].values, 20) for key in COMPOSING}
        for score in ("projection_kernel", "composition_score")
    }


def ranks_and_kernels(checkpoint: Checkpoint) -> tuple[np.ndarray, np.ndarray]:
    """The numerical ranks of all heads' matrices, and all projection kernels."""
    nodes = _pairing_nodes(affinity_of(checkpoint)).values()
    ranks = np.concatenate([node[name].values.ravel() for node in nodes for name in ("src_rank", "dst_rank")])
    return ranks, np.concatenate([node["projection_kernel"].values.ravel() for node in nodes])


def positions_of(checkpoint: Checkpoint) -> Result:
    """Positions and tokens, weights as stored, tables as stored."""
    result: Result = measured_once("positions", checkpoint, lambda: positions(checkpoint))
    return result


def position_values(
    checkpoint: Checkpoint, name: str, *, null: bool = False, centered: bool = False, **place: Any
) -> np.ndarray:
    """One variable about positions and tokens, or its value under the null, at a place given by labels."""
    variable = positions_of(checkpoint).grid()[f"{name}_null" if null else name]
    usual = {"centering": "centered" if centered else "stored", "k_choice": "given"}
    values: np.ndarray = variable.sel({key: usual[key] for key in usual if key in variable.dims} | place).values
    return values


def over_null(checkpoint: Checkpoint, name: str, **place: Any) -> np.ndarray:
    """A variable about positions and tokens, over its value under the null."""
    value, null = (position_values(checkpoint, name, null=null, **place) for null in (False, True))
    ratio: np.ndarray = value / null
    return ratio


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


def reproduction(paper: str, heads: Heads, result: Result | None = None) -> list[Line]:
    """Every published value beside the computed one; `result` is the affinity of all pairings, where it is there."""
    if paper != PAPER:
        raise HeadspanError(f"headspan reproduces {PAPER}, not {paper!r}")
    shape = (heads.n_layers, heads.n_heads, heads.d_model, heads.d_head)
    if shape != SHAPE or heads.checkpoint.family != "gpt2" or heads.fold != "none":
        raise HeadspanError(f"{PAPER} is about GPT-2 small (12 layers x 12 heads, d_model 768), weights as stored")
    if result is None:
        result = affinity(heads, pairings="all", null="haar", draws=2)
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
