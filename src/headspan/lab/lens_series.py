"""Every lens that applies, on every kept checkpoint of a run, as one tree with dim `step`.

Lenses cost seconds, rows of the record milliseconds; so the lenses run afterwards, on the checkpoints, and their series
lies beside the record. Nodes are `<lens>/<node>`, each variable with a leading axis `step`. A checkpoint too degenerate
for a lens is left out of that lens's series.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from headspan.atomic import written_whole
from headspan.checkpoint import open_checkpoint
from headspan.errors import DegenerateSubspace, HeadspanError
from headspan.lenses import LENSES, obstacles
from headspan.threads import one_thread

TRACKED: Mapping[str, Mapping[str, Any]] = {
    "ranks": {},
    "affinity": {},
    "similarity": {"maps": False},
    "positions": {},
    "spectra": {},
}
"""Lenses that follow a run, with their options: together about half a second per checkpoint. Maps of heads would take
seconds, and those of two steps cannot be laid on one another."""


def lens_series(checkpoints: Mapping[int, Path], lenses: Sequence[str] = tuple(TRACKED)) -> xr.DataTree:
    """Lens results along training.

    Parameters
    ----------
    checkpoints
        Checkpoint folders by step.
    lenses
        Names of lenses; one that does not apply to these models is left out, with the reason in the attributes.

    Returns
    -------
    DataTree
        One node per lens, below it the lens's own nodes, every variable with the axis `step`.
    """
    if not checkpoints:
        raise HeadspanError("a series of lens results needs at least one checkpoint, found none; train with save_every")
    unknown = [name for name in lenses if name not in LENSES]
    if unknown:
        raise HeadspanError(f"there is no lens {unknown[0]!r}; lenses are {', '.join(LENSES)}")
    found: dict[str, dict[int, xr.Dataset]] = {}
    attributes: dict[str, str] = {}
    for step, folder in sorted(checkpoints.items()):
        opened = open_checkpoint(str(folder))
        hindered = obstacles(opened)
        for name in lenses:
            reason = hindered[name]
            if reason is not None:
                attributes[f"{name}_left_out"] = reason
                continue
            for node, dataset in _nodes(name, opened.heads(dtype="float64")).items():
                found.setdefault(node, {})[step] = dataset
    nodes: dict[str, xr.Dataset | xr.DataTree] = {name: along(by_step) for name, by_step in found.items()}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **nodes})


def _nodes(name: str, heads: object) -> dict[str, xr.Dataset]:
    """A lens's result as datasets by path; nothing where the weights are too degenerate for it."""
    try:
        with one_thread():
            result = LENSES[name].compute(heads, **TRACKED.get(name, {}))  # type: ignore[arg-type]
    except DegenerateSubspace:
        return {}
    if isinstance(result, xr.Dataset):
        return {name: result}
    found = {f"{name}{node.path}": node.to_dataset(inherit=False) for node in result.subtree}
    return {path.rstrip("/"): dataset for path, dataset in found.items() if dataset.data_vars}


def along(by_step: Mapping[int, xr.Dataset]) -> xr.Dataset:
    """Results of one lens by step as one Dataset with the axis `step`."""
    steps = sorted(by_step)
    return xr.concat(
        _of_one_size([by_step[step] for step in steps]),
        dim=pd.Index(steps, name="step"),
        join="outer",
        combine_attrs="drop_conflicts",
        data_vars="all",
        coords="minimal",
        compat="override",
    )


def _of_one_size(datasets: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """The same datasets, with axes that only count things (and may count more of them later) filled up by NaN."""
    counted = {dim for one in datasets for dim in one.dims if dim not in one.coords}
    longest = {dim: max(one.sizes.get(dim, 0) for one in datasets) for dim in counted}
    uneven = {dim for dim in counted if any(one.sizes.get(dim, longest[dim]) < longest[dim] for one in datasets)}
    return [_filled(one, {dim: longest[dim] - one.sizes[dim] for dim in uneven if dim in one.dims}) for one in datasets]


def _filled(dataset: xr.Dataset, lacking: Mapping[Hashable, int]) -> xr.Dataset:
    changed = {}
    for name, values in dataset.data_vars.items():
        own = {dim: (0, lacking[dim]) for dim in values.dims if dim in lacking}
        if own:
            text = values.dtype.kind in "OUS"
            padded = values.astype(object if text else float).pad(own)
            changed[name] = padded.fillna("").astype(str) if text else padded
    return dataset.drop_vars(list(changed)).assign(changed) if changed else dataset


def write_series(tree: xr.DataTree, path: Path) -> None:
    """The series as netCDF, whole or not at all."""
    with written_whole(path) as temporary:
        tree.to_netcdf(temporary, engine="h5netcdf")
