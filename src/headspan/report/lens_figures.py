"""The figures of one lens for the page, with published head classes where they fit the model."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from inspect import signature

import xarray as xr

from headspan.heads import Heads
from headspan.lenses import Lens
from headspan.lenses.affinity.head_classes import default_labels
from headspan.report.figure_block import figure_blocks
from headspan.report.html import Markup, element


def lens_figures(lens: Lens, result: xr.Dataset | xr.DataTree, heads: Heads) -> list[Markup]:
    """Every figure of a result, ready for the page; none for a lens that draws nothing.

    Figures that take `classes` are given the published ones whose model has this shape, and a line says so.
    """
    name = f"headspan.figures.{lens.name}"
    if find_spec(name) is None:
        return []
    draw = import_module(name).figures
    labels = default_labels(heads) if "classes" in signature(draw).parameters else None
    if labels is None:
        return figure_blocks(draw(result))
    note = f"Head classes: {labels.source}. They were published for a model of this shape, and hold if it is this one."
    return [element("p", note, class_="evidence"), *figure_blocks(draw(result, classes=labels.of_head))]
