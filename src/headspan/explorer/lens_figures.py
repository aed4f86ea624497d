"""The figures of one lens for the page: with classes of heads where there are any, and for either score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from headspan.lenses.affinity.figures import affinity_matrices, score_distributions, wiring_diagram
from headspan.lenses.affinity.head_classes import HeadClasses
from headspan.lenses.affinity.pairing_figures import shown_metrics


def lens_figures(
    lens: str, result: xr.Dataset | xr.DataTree, classes: HeadClasses | None = None
) -> dict[str, go.Figure]:
    """Every figure of a result by name; none for a lens that draws nothing."""
    name = f"headspan.lenses.{lens}.figures"
    if find_spec(name) is None:
        return {}
    draw = import_module(name).figures
    given: dict[str, Any] = {}
    if classes is not None and "classes" in signature(draw).parameters:
        given["classes"] = classes.of_head
    drawn: dict[str, go.Figure] = draw(result, **given)
    return drawn


def by_metric(
    lens: str,
    result: xr.Dataset | xr.DataTree,
    figures: Mapping[str, go.Figure],
    classes: HeadClasses | None = None,
) -> dict[str, dict[str, go.Figure]]:
    """Of figures that show one score of pairs, the same for each score that there is, by figure's name and score's."""
    if lens != "affinity" or not isinstance(result, xr.DataTree):
        return {}
    metrics = shown_metrics(result)
    named = None if classes is None else classes.of_head
    drawing: dict[str, Callable[[str], go.Figure]] = {
        "Wiring diagram": lambda metric: wiring_diagram(result, named, metric=metric),
        "Wiring around an ellipse": lambda metric: wiring_diagram(result, named, metric=metric, layout="ellipse"),
        "All pairs": lambda metric: affinity_matrices(result, metric),
        "Scores beside chance": lambda metric: score_distributions(result, metric),
    }
    return {
        name: {metric: figures[name] if metric == metrics[0] else draw(metric) for metric in metrics}
        for name, draw in drawing.items()
        if name in figures and len(metrics) > 1
    }
