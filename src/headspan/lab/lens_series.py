"""Every lens that follows a series, on every kept checkpoint of a run, as one tree with dim `step`.

Lenses cost seconds, rows of the record milliseconds; so the lenses run afterwards, on the checkpoints, and their series
lies beside the record. Nodes are `<lens>/<node>`, each variable with a leading axis `step`. A checkpoint too degenerate
for a lens is left out of that lens's series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr

from headspan.atomic import written_whole
from headspan.errors import ArgumentError, DegenerateSubspace
from headspan.frames import nodes_of
from headspan.lenses.catalog import lens, lenses
from headspan.lenses.model import open_model
from headspan.lenses.run import run
from headspan.lenses.series import along_steps
from headspan.result import Result
from headspan.threads import one_thread


def tracked_lenses() -> tuple[str, ...]:
    """Lenses that follow a run: those of one checkpoint that read weights alone and need no choice of heads."""
    return tuple(
        name
        for name, each in lenses().items()
        if each.subjects == 1 and each.reads_weights_alone and each.in_series and not each.on_request
    )


def lens_series(checkpoints: Mapping[int, Path], names: Sequence[str] | None = None) -> xr.DataTree:
    """Lens results along training.

    Parameters
    ----------
    checkpoints
        Checkpoint folders by step.
    names
        Names of lenses; by default all that follow a run. One that does not apply to these models is left out, with the
        reason in the attributes.

    Returns
    -------
    DataTree
        One node per lens, below it the lens's own nodes, every variable with the axis `step`.
    """
    if not checkpoints:
        raise ArgumentError("checkpoints: a series needs at least one, found none; train with save_every")
    chosen = [lens(name) for name in (tracked_lenses() if names is None else names)]
    found: dict[str, dict[int, Result]] = {}
    attributes: dict[str, str] = {}
    for step, folder in sorted(checkpoints.items()):
        model = open_model(str(folder))
        reasons = model.skip_reasons()
        for each in chosen:
            reason = reasons.get(each.name)
            if reason is not None:
                attributes[f"{each.name}_left_out"] = reason
                continue
            try:
                with one_thread():
                    result = run(each, [model.heads(dtype="float64")], each.series_options, {"progress": False})
            except DegenerateSubspace:
                continue
            found.setdefault(each.name, {})[step] = result
    nodes = {
        f"{name}/{path}".rstrip("/"): node
        for name, by_step in found.items()
        for path, node in nodes_of(along_steps(by_step)).items()
    }
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **nodes})


def write_series(tree: xr.DataTree, path: Path) -> None:
    """Write a series as netCDF, whole or not at all."""
    with written_whole(path) as temporary:
        tree.to_netcdf(temporary, engine="h5netcdf")
