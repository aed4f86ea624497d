"""Classes of heads on a page: those published for a model of this shape, and those that running it detects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray as xr

from headspan.errors import HeadspanError
from headspan.heads import Heads
from headspan.lenses.affinity.head_classes import HeadClasses, default_labels
from headspan.lenses.detect.classes import detected_classes


def page_classes(heads: Heads, results: Mapping[str, xr.Dataset | xr.DataTree]) -> list[HeadClasses]:
    """Published classes first, then detected ones; empty where there are neither."""
    published, detected = default_labels(heads), _detected(results.get("detect"))
    return [found for found in (published, detected) if found is not None]


def _detected(result: xr.Dataset | xr.DataTree | None) -> HeadClasses | None:
    if not isinstance(result, xr.Dataset) or "label" not in result:
        return None
    try:
        found = detected_classes(result)
    except HeadspanError:
        return None
    return HeadClasses({name.replace("_", " "): heads for name, heads in found.classes.items()}, found.source)


def names_by_head(sources: Sequence[HeadClasses]) -> dict[str, list[str]]:
    """Head label -> all its classes."""
    found: dict[str, list[str]] = {}
    for source in sources:
        for name, labels in source.classes.items():
            for label in labels:
                found.setdefault(label, []).append(name)
    return found
