"""Results of one lens at several steps of a training run, joined along an axis `step`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import pandas as pd
import xarray as xr

from headspan.errors import ArgumentError
from headspan.frames import nodes_of
from headspan.labels import AXES, indexed
from headspan.result import Result


def along_steps(results: Mapping[int, Result]) -> xr.DataTree:
    """Results by step as one tree whose variables have a leading axis `step`.

    Parameters
    ----------
    results
        By training step, in any order; all of one lens, with the same nodes and the same heads.

    Returns
    -------
    DataTree
        The same nodes; axes that only count (and may count more at some steps) are filled up with NaN. Attributes that
        differ between steps are left out.
    """
    if not results:
        raise ArgumentError("results: a series needs the result of at least one step")
    steps = sorted(results)
    first, nodes = steps[0], {step: nodes_of(results[step].data) for step in steps}
    other = next((step for step in steps if set(nodes[step]) != set(nodes[first])), None)
    if other is not None:
        raise ArgumentError(
            f"results: step {other} holds other parts than step {first} ({', '.join(nodes[other])} and "
            f"{', '.join(nodes[first])}); compute both with the same options"
        )
    joined = {name: joined_node({step: nodes[step][name] for step in steps}) for name in nodes[first]}
    told = xr.merge([xr.Dataset(attrs=results[step].attrs) for step in steps], combine_attrs="drop_conflicts")
    root = joined.pop("", xr.Dataset()).assign_attrs(told.attrs)
    return xr.DataTree.from_dict({"/": root, **{f"/{name}": node for name, node in joined.items()}})


def joined_node(by_step: Mapping[int, xr.Dataset]) -> xr.Dataset:
    """One node's datasets by step as one dataset with the axis `step`."""
    steps = sorted(by_step)
    datasets = [by_step[step] for step in steps]
    for dim in AXES:
        labels = [None if dim not in one.coords else list(one[dim].values) for one in datasets]
        if any(each != labels[0] for each in labels):
            raise ArgumentError(f"results: the axis {dim!r} has other heads at some steps; join steps of one model")
    plain = [one.drop_indexes([dim for dim in AXES if dim in one.indexes]) for one in _same_sizes(datasets)]
    joined = xr.concat(
        plain,
        dim=pd.Index(steps, name="step"),
        join="outer",
        combine_attrs="drop_conflicts",
        data_vars="all",
        coords="minimal",
        compat="override",
    )
    attrs = joined.attrs
    group = int(attrs.get("n_heads", 1)) // max(int(attrs.get("n_kv_heads", 1)), 1)
    return indexed(joined, group)


def _same_sizes(datasets: Sequence[xr.Dataset]) -> list[xr.Dataset]:
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
