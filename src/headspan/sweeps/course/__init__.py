"""The course of training: everything a sweep kept of a series, as curves, change points, edges, drift and spectra."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from headspan._version import __version__
from headspan.errors import HeadspanError
from headspan.statistics.abrupt_changes import WALKS
from headspan.sweeps.contents import open_store
from headspan.sweeps.course.curves import (
    Axis,
    curve_dataset,
    lens_curves,
    matrix_summary,
    movement_summary,
    step_changes,
)
from headspan.sweeps.course.wiring import wiring_edges

FACTS = ("source", "revision", "content_hash", "identical_to")


def evolution(store: str | Path | xr.DataTree, *, walks: int = WALKS) -> xr.DataTree:
    """What changes along training, and when.

    Parameters
    ----------
    store
        A sweep's store, or what `open_store` returned.
    walks
        Random walks that change points are compared with; p-values are no finer than 1 / (1 + walks).

    Returns
    -------
    DataTree
        One node per model with at least two steps; below it `checkpoints`, `quantities` (every lens's curves with their
        change points), `wiring`, `movement`, `matrices`, as far as their lenses were swept.
    """
    opened = store if isinstance(store, xr.DataTree) else open_store(store)
    attributes = {"lens": "evolution", "store": str(opened.attrs.get("store", "")), "headspan_version": __version__}
    nodes: dict[str, xr.Dataset] = {"/": xr.Dataset(attrs=attributes)}
    for place, trees in opened.children.items():
        steps, model = _steps(trees), str(next(iter(trees.children.values())).attrs["model"])
        if len(steps) < 2:
            continue
        axis = {"model": model, "axis": Axis.of(steps).name}
        nodes[place] = xr.Dataset(attrs=axis)
        nodes[f"{place}/checkpoints"] = _checkpoints(trees, model)
        nodes[f"{place}/quantities"] = _quantities(trees, model, steps, walks)
        parts = {
            "wiring": wiring_edges(trees, model, walks),
            "movement": movement_summary(trees, model),
            "matrices": matrix_summary(trees, model),
        }
        nodes |= {f"{place}/{name}": part.assign_attrs(axis) for name, part in parts.items() if part is not None}
    if len(nodes) == 1:
        raise HeadspanError(
            "nothing evolves here: no model in this store has two finished steps; sweep over more steps"
        )
    return xr.DataTree.from_dict(nodes)


def _steps(trees: xr.DataTree) -> np.ndarray:
    found = {int(step) for tree in trees.children.values() for step in tree.to_dataset()["step"].values}
    return np.array(sorted(found), dtype=np.int64)


def _checkpoints(trees: xr.DataTree, model: str) -> xr.Dataset:
    """Sources and content hashes of every step, from the lens that has most of them."""
    tree = max(trees.children.values(), key=lambda one: one.sizes["step"])
    dataset = tree.to_dataset().sel(model=model)[list(FACTS)].drop_vars("model").load()
    notes = {
        f"{name}_{kind}": str(one.attrs[attribute])
        for kind, attribute in (("missing", "missing_steps"), ("left_out", "left_out"))
        for name, one in trees.children.items()
        if one.attrs.get(attribute)
    }
    return xr.Dataset({name: dataset[name] for name in FACTS}, coords={"step": dataset["step"]}, attrs=notes)


def _quantities(trees: xr.DataTree, model: str, steps: np.ndarray, walks: int) -> xr.Dataset:
    table = curve_dataset(list(lens_curves(trees, model)), steps)
    points = step_changes(table["value"].values, steps, walks).rename(curve="quantity")
    return table.assign(points.data_vars).assign_attrs(points.attrs)
