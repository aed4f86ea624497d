"""Precision and recall of "this head is in a class", threshold by threshold, for every class and score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from sklearn.metrics import average_precision_score, precision_recall_curve

from headspan.lenses.affinity.class_detection import head_scores, scored_metrics
from headspan.statistics.permutation import Array

ANY = "any class"


@dataclass(frozen=True)
class ClassCurve:
    """How well the largest affinity of a head finds the members of one class.

    `precision` and `recall` in [0, 1] over thresholds; without information, precision is `base_rate` throughout.
    """

    target: str
    metric: str
    precision: Array
    recall: Array
    average_precision: float
    base_rate: float


def class_curves(result: xr.DataTree, classes: Mapping[str, str]) -> list[ClassCurve]:
    """One curve per class (and for all together) and metric; none for a class with no head here, or with all of them.

    Parameters
    ----------
    result
        An affinity result.
    classes
        Head label -> class.
    """
    found = []
    for metric in scored_metrics(result):
        labels, by_score = head_scores(result, metric)
        values = by_score["largest"]
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
