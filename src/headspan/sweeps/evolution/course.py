"""The course of training: everything a sweep kept of a series, as curves, change points, edges, drift and spectra."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from headspan._version import __version__
from headspan.errors import HeadspanError
from headspan.statistics.change_points import WALKS
from headspan.sweeps.evolution.axis import Axis, step_changes
from headspan.sweeps.evolution.curves import curve_dataset, curves
from headspan.sweeps.evolution.summaries import drift_summary, spectra_summary
from headspan.sweeps.evolution.wiring import wiring
from headspan.sweeps.reading import open_store


def evolution(store: str | Path | xr.DataTree, walks: int = WALKS) -> xr.DataTree:
    """What changes along training, and when.

    Parameters
    ----------
    store
        A sweep's store, or what `open_store` gave.
    walks
        Random walks that change points are held against; p-values are no finer than 1 / (1 + walks).

    Returns
    -------
    DataTree
        One node per model with at least two steps; below it `checkpoints`, `quantities` (every lens's curves with their
        change points), `wiring`, `drift`, `spectra`, as far as their lenses were swept.
    """
    opened = store if isinstance(store, xr.DataTree) else open_store(store)
    nodes: dict[str, xr.Dataset] = {"/": xr.Dataset(attrs=_attributes(opened))}
    for place, lenses in opened.children.items():
        steps, model = _steps(lenses), _model(lenses)
        if len(steps) < 2:
            continue
        axis = {"model": model, "axis": Axis.of(steps).name}
        nodes[place] = xr.Dataset(attrs=axis)
        nodes[f"{place}/checkpoints"] = _checkpoints(lenses, model)
        nodes[f"{place}/quantities"] = _quantities(lenses, model, steps, walks)
        parts = {
            "wiring": wiring(lenses, model, walks),
            "drift": drift_summary(lenses, model),
            "spectra": spectra_summary(lenses, model),
        }
        nodes |= {f"{place}/{name}": part.assign_attrs(axis) for name, part in parts.items() if part is not None}
    if len(nodes) == 1:
        raise HeadspanError(
            "nothing evolves here: no model in this store has two finished steps; sweep over more steps"
        )
    return xr.DataTree.from_dict(nodes)


def _attributes(opened: xr.DataTree) -> dict[str, str]:
    return {"lens": "evolution", "store": str(opened.attrs.get("store", "")), "headspan_version": __version__}


def _steps(lenses: xr.DataTree) -> np.ndarray:
    found = {int(step) for tree in lenses.children.values() for step in tree.to_dataset()["step"].values}
    return np.array(sorted(found), dtype=np.int64)


def _model(lenses: xr.DataTree) -> str:
    return str(next(iter(lenses.children.values())).attrs["model"])


def _checkpoints(lenses: xr.DataTree, model: str) -> xr.Dataset:
    """Sources and content hashes of every step, from the lens that has most of them."""
    tree = max(lenses.children.values(), key=lambda one: one.sizes["step"])
    names = ("source", "revision", "content_hash", "identical_to")
    dataset = tree.to_dataset().sel(model=model)[list(names)].drop_vars("model").load()
    missing = {name: str(one.attrs.get("missing_steps", "")) for name, one in lenses.children.items()}
    left_out = {name: str(one.attrs.get("left_out", "")) for name, one in lenses.children.items()}
    notes = {f"{name}_missing": text for name, text in missing.items() if text}
    notes |= {f"{name}_left_out": text for name, text in left_out.items() if text}
    return xr.Dataset({name: dataset[name] for name in names}, coords={"step": dataset["step"]}, attrs=notes)


def _quantities(lenses: xr.DataTree, model: str, steps: np.ndarray, walks: int) -> xr.Dataset:
    table = curve_dataset(list(curves(lenses, model)), steps)
    points = step_changes(table["value"].values, steps, walks).rename(curve="quantity")
    return table.assign(points.data_vars).assign_attrs(points.attrs)
