"""Do high scores find the heads and edges of known classes? Precision and recall, kernel beside composition score.

Two questions, each with a stated score:

- `head`: is this head in class c? Scored by the head's largest affinity to any other head, and by its mean affinity.
- `edge`: does this pair join class a to class b? Scored by the pair's own affinity.

Answers are average precision (the area under the precision-recall curve as a step function) and the trapezoidal PR-AUC,
beside the base rate, which is what a score without information reaches. Intervals resample heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from headspan.dims import PAIR_DIMS
from headspan.heads.classes import HeadClasses
from headspan.lenses.affinity.schema import METRICS
from headspan.lenses.affinity.wiring import (
    composing_pairings,
    edges,
    head_node,
    hub_scores,
    metrics_of,
    ranked_hubs,
    wiring_graph,
)
from headspan.result import Result
from headspan.statistics import quantile_interval, resample_weights
from headspan.statistics.permutation import Array

ANY = "any class"


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


@dataclass(frozen=True)
class ClassCurve:
    """How well the largest or mean affinity of a head finds the members of one class.

    `precision` and `recall` in [0, 1] over thresholds; without information, precision is `base_rate` throughout.
    """

    target: str
    metric: str
    precision: Array
    recall: Array
    average_precision: float
    base_rate: float


def class_nodes(result: Result, classes: HeadClasses, top: int) -> dict[str, xr.Dataset]:
    """How classes stand in the graph and among the hubs, and how well affinity finds them: three nodes of a result."""
    joined = [(a, b) for a in classes.classes for b in classes.classes if a != b]
    found = [*head_detection(result, classes), *edge_detection(result, classes, joined)]
    names = [each.name for each in fields(Detection)]
    answers = pd.DataFrame([vars(detection) for detection in found], columns=names)
    answers = answers.astype({**dict.fromkeys(names[4:-1], float), names[-1]: int})
    return {
        "classes": class_counts(result, classes, top).set_index("metric").to_xarray(),
        "detection": _dataset(answers, "test", names[:4]),
        "class_hubs": _dataset(class_hubs(hub_scores(result), classes.classes), "member", ["class", "head"]),
    }


def _dataset(rows: pd.DataFrame, dim: str, names: Sequence[str]) -> xr.Dataset:
    """Rows along one axis; the columns `names` say what a row is."""
    columns = {str(name): (dim, rows[name].to_numpy()) for name in rows.columns}
    return xr.Dataset({name: each for name, each in columns.items() if name not in names}).assign_coords(
        {name: (dim, rows[name].to_numpy(object)) for name in names}
    )


def class_counts(result: Result, classes: HeadClasses, top: int = 20) -> pd.DataFrame:
    """Nodes of the top-k graph inside and outside the classes, per metric."""
    rows = []
    for metric in scored_metrics(result):
        nodes = set(wiring_graph(result, metric=metric, top=top).nodes)
        inside = len(nodes & set(classes.of_head))
        rows.append({"metric": metric, "nodes": len(nodes), "in_class": inside, "out_of_class": len(nodes) - inside})
    return pd.DataFrame(rows)


def class_hubs(hubs: xr.Dataset, classes: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Where the members of each class stand among all hubs: is one of them special, or is the class?

    Returns
    -------
    DataFrame
        `class`, `head`, `rank` (1 is the strongest hub; the middle for random members), `n_heads`, `score`.
    """
    ranked = ranked_hubs(hubs)
    places = {head: place for place, head in enumerate(ranked["head"])}
    rows = [
        (name, head, places[head] + 1, len(ranked), ranked["hub_score"][places[head]])
        for name, members in classes.items()
        for head in members
        if head in places
    ]
    return pd.DataFrame(rows, columns=["class", "head", "rank", "n_heads", "score"]).sort_values(["class", "rank"])


def head_detection(result: Result, classes: HeadClasses, draws: int = 400, seed: int = 0) -> list[Detection]:
    """Average precision of "this head is in class c", for every class and for all together."""
    found = []
    for metric in scored_metrics(result):
        labels, by_score = head_scores(result, metric)
        units = (np.arange(len(labels)),)
        for score, values in by_score.items():
            for target, members in {**classes.classes, ANY: tuple(classes.of_head)}.items():
                question = ("head", target, metric, score)
                found.append(_detection(question, np.isin(labels, members), values, units, draws, seed))
    return [detection for detection in found if detection is not None]


def edge_detection(
    result: Result, classes: HeadClasses, pairs: Sequence[tuple[str, str]], draws: int = 400, seed: int = 0
) -> list[Detection]:
    """Average precision of "this pair joins class a to class b", over all composing pairs of each pairing."""
    found = []
    for metric in scored_metrics(result):
        for pairing in composing_pairings(result):
            table = edges(result, pairing, metric)
            src, dst = table["src"].map(classes.of_head), table["dst"].map(classes.of_head)
            heads = pd.factorize(pd.concat([table["src"], table["dst"]]))[0]
            units = (heads[: len(table)], heads[len(table) :])
            for a, b in pairs:
                question = ("edge", f"{a} -> {b} ({pairing})", metric, "pair")
                truth = ((src == a) & (dst == b)).to_numpy()
                found.append(_detection(question, truth, table["score"].to_numpy(), units, draws, seed))
    return [detection for detection in found if detection is not None]


def class_curves(result: Result, classes: Mapping[str, str], aggregate: str = "largest") -> list[ClassCurve]:
    """One curve per class (and for all together) and metric; none for a class with no head here, or with all of them.

    Parameters
    ----------
    result
        An affinity result.
    classes
        Head label -> class.
    aggregate
        What stands for a head: its "largest" affinity, or its "mean".
    """
    from sklearn.metrics import average_precision_score, precision_recall_curve

    found = []
    for metric in scored_metrics(result):
        labels, by_score = head_scores(result, metric)
        values = by_score[aggregate]
        known = ~np.isnan(values)
        for target in (*dict.fromkeys(classes.values()), ANY):
            members = [label for label, name in classes.items() if target in (name, ANY)]
            truth = np.isin(labels, members)[known]
            if not truth.any() or truth.all():
                continue
            precision, recall, _ = precision_recall_curve(truth, values[known])
            average = float(average_precision_score(truth, values[known]))
            found.append(ClassCurve(target, metric, precision, recall, average, float(truth.mean())))
    return found


def scored_metrics(result: Result) -> list[str]:
    """The scores that OQ, OK and OV have, as far as the result holds them."""
    used = composing_pairings(result)
    return [metric for metric in METRICS if used and all(metric in metrics_of(result, each) for each in used)]


def head_scores(result: Result, metric: str) -> tuple[list[str], dict[str, Array]]:
    """Labels of all query heads, and each one's largest and mean affinity over its pairs of OQ, OK and OV."""
    used, parts = composing_pairings(result), []
    for pairing in used:
        scores = result.grid(pairing)[metric].transpose(*PAIR_DIMS).values
        n_layers, n_heads = scores.shape[:2]
        incoming = np.repeat(scores, n_heads // scores.shape[3], axis=3)
        parts += [scores.reshape(n_layers * n_heads, -1), incoming.reshape(-1, n_layers * n_heads).T]
    mine = np.concatenate(parts, axis=1)
    known = ~np.isnan(mine)
    count = known.sum(1)
    mean = np.divide(np.where(known, mine, 0).sum(1), count, out=np.full(len(mine), np.nan), where=count > 0)
    largest = np.where(count > 0, np.where(known, mine, -np.inf).max(1), np.nan)
    return list(head_node(result, used[0])["src"].values), {"largest": largest, "mean": mean}


def _detection(
    question: tuple[str, str, str, str],
    truth: npt.NDArray[np.bool_],
    values: Array,
    units: tuple[npt.NDArray[np.int64], ...],
    draws: int,
    seed: int,
) -> Detection | None:
    """One row of the evaluation; None where there is nothing to find, or nothing else."""
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve

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
