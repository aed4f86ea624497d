"""Do high scores find the heads and edges of known classes? Precision and recall, kernel beside composition score.

Two questions, each with a stated score:

- `head`: is this head in class c? Scored by the head's largest affinity to any other head, and by its mean affinity.
- `edge`: does this pair join class a to class b? Scored by the pair's own affinity.

Answers are average precision (the area under the precision-recall curve as a step function) and the trapezoidal PR-AUC,
beside the base rate, which is what a score without information reaches. Intervals resample heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from sklearn.metrics import auc, average_precision_score, precision_recall_curve

from headspan.dims import COMPOSING, PAIR_DIMS, HeadLabel
from headspan.lenses.affinity.edges import edges, pairing_node, pairings_of
from headspan.lenses.affinity.head_classes import HeadClasses
from headspan.lenses.affinity.lens import METRICS, VARIABLES
from headspan.lenses.affinity.wiring import wiring_graph
from headspan.statistics import quantile_interval, resample_weights
from headspan.statistics.permutation import Array


@dataclass(frozen=True)
class Detection:
    """How well one score answers one question."""

    question: str
    target: str
    metric: str
    score: str
    average_precision: float
    low: float
    high: float
    pr_auc: float
    base_rate: float
    positives: int


def class_counts(result: xr.DataTree, classes: HeadClasses, top: int = 20) -> pd.DataFrame:
    """Nodes of the top-k graph inside and outside the classes, per metric."""
    rows = []
    for metric in scored_metrics(result):
        nodes = set(wiring_graph(result, metric=metric, top=top).nodes)
        inside = len(nodes & set(classes.of_head))
        rows.append({"metric": metric, "nodes": len(nodes), "in_class": inside, "out_of_class": len(nodes) - inside})
    return pd.DataFrame(rows)


def head_detection(result: xr.DataTree, classes: HeadClasses, draws: int = 400, seed: int = 0) -> list[Detection]:
    """Average precision of "this head is in class c", for every class and for all together."""
    found = []
    for metric in scored_metrics(result):
        labels, by_score = head_scores(result, metric)
        units = (np.arange(len(labels)),)
        for score, values in by_score.items():
            for target, members in {**classes.classes, "any class": tuple(classes.of_head)}.items():
                question = ("head", target, metric, score)
                found.append(_detection(question, np.isin(labels, members), values, units, draws, seed))
    return [detection for detection in found if detection is not None]


def edge_detection(
    result: xr.DataTree, classes: HeadClasses, pairs: Sequence[tuple[str, str]], draws: int = 400, seed: int = 0
) -> list[Detection]:
    """Average precision of "this pair joins class a to class b", over all composing pairs of each pairing."""
    found = []
    for metric in scored_metrics(result):
        for pairing in _composing(result):
            table = edges(result, pairing, metric)
            src, dst = table["src"].map(classes.of_head), table["dst"].map(classes.of_head)
            heads = pd.factorize(pd.concat([table["src"], table["dst"]]))[0]
            units = (heads[: len(table)], heads[len(table) :])
            for a, b in pairs:
                question = ("edge", f"{a} -> {b} ({pairing})", metric, "pair")
                truth = ((src == a) & (dst == b)).to_numpy()
                found.append(_detection(question, truth, table["score"].to_numpy(), units, draws, seed))
    return [detection for detection in found if detection is not None]


def _composing(result: xr.DataTree) -> list[str]:
    return [pairing for pairing in COMPOSING if pairing in pairings_of(result)]


def scored_metrics(result: xr.DataTree) -> list[str]:
    nodes = [pairing_node(result, pairing) for pairing in _composing(result)]
    return [metric for metric in METRICS if nodes and all(VARIABLES[metric][0] in node for node in nodes)]


def head_scores(result: xr.DataTree, metric: str) -> tuple[list[str], dict[str, Array]]:
    """Labels of all query heads, and each one's largest and mean affinity over its pairs of OQ, OK and OV."""
    n_heads, parts = int(result.attrs["n_heads"]), []
    for pairing in _composing(result):
        scores = pairing_node(result, pairing)[VARIABLES[metric][0]].transpose(*PAIR_DIMS).values
        incoming = np.repeat(scores, n_heads // scores.shape[3], axis=3)
        n_all = scores.shape[0] * n_heads
        parts += [scores.reshape(n_all, -1), incoming.reshape(-1, n_all).T]
    mine = np.concatenate(parts, axis=1)
    known = ~np.isnan(mine)
    count = known.sum(1)
    mean = np.divide(np.where(known, mine, 0).sum(1), count, out=np.full(len(mine), np.nan), where=count > 0)
    largest = np.where(count > 0, np.where(known, mine, -np.inf).max(1), np.nan)
    layers = pairing_node(result, _composing(result)[0])["src_layer"].values
    labels = [str(HeadLabel(int(layer), head)) for layer in layers for head in range(n_heads)]
    return labels, {"largest": largest, "mean": mean}


def _detection(
    question: tuple[str, str, str, str],
    truth: npt.NDArray[np.bool_],
    values: Array,
    units: tuple[npt.NDArray[np.int64], ...],
    draws: int,
    seed: int,
) -> Detection | None:
    """One row of the evaluation; None where there is nothing to find, or nothing else."""
    known = ~np.isnan(values)
    truth, values, units = truth[known], values[known], tuple(unit[known] for unit in units)
    if not truth.any() or truth.all():
        return None
    precision, recall, _ = precision_recall_curve(truth, values)
    order = np.argsort(-values, kind="stable")
    weights = resample_weights(tuple(unit[order] for unit in units), draws, seed)
    drawn = weighted_average_precision(truth[order], weights)
    low, high = quantile_interval(drawn)
    return Detection(
        *question,
        average_precision=float(average_precision_score(truth, values)),
        low=low,
        high=high,
        pr_auc=float(auc(recall, precision)),
        base_rate=float(truth.mean()),
        positives=int(truth.sum()),
    )


def weighted_average_precision(truth: npt.NDArray[np.bool_], weights: Array) -> Array:
    """Average precision of items already sorted by falling score, for each row of weights; NaN without positives."""
    hits = np.cumsum(weights * truth, axis=1)
    seen = np.cumsum(weights, axis=1)
    precision = np.divide(hits, seen, out=np.zeros_like(hits), where=seen > 0)
    total = hits[:, -1]
    area = np.sum(precision * weights * truth, axis=1)
    average: Array = np.divide(area, total, out=np.full(len(total), np.nan), where=total > 0)
    return average
