"""From finished parts to one Zarr group per model and lens, with leading dims `model` and `step`.

1. The parts of a lens are looked at step by step (`outline`): which variables all steps have alike. A step of which a
   block is missing is left out, and named; so is a variable that has another shape at some steps.
2. The group is laid out empty: shapes, attributes, axes with their labels. Then values are put in, as many steps at a
   time as a budget of memory holds, one at least. What it takes is thus bounded by a step, not by the length of the
   series.
3. The group is written beside its final place and renamed. It is made from the parts alone and can be made again from
   them at any time; `made_from` says from which.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headspan.errors import StoreError
from headspan.seal import FOLDER_SEAL, folder_digest
from headspan.sweeps.parts import TEMPORARY, Outline, Part, read_part, same_values

LEADING = ("model", "step")
AT_ONCE = 64_000_000
"""Bytes of results that are put into a group at a time, if a step is not larger."""
LARGEST_CHUNK = 64_000_000
PATIENCE, PAUSE, QUIET = 100, 0.05, 20
"""Looks at a folder that is to go, and seconds between them. Zarr writes several files at once: where one fails, others
may yet come after it and make the folder anew, so that it must stay away for some looks."""
Arrays = dict[tuple[str, str], Any]
"""What holds the values of all steps, [model, step, ...], by node and variable: in memory, to come, or on disk."""


@dataclass(frozen=True)
class Gathering:
    """What one group is made of: the part files of every step (one per block), and facts about each step."""

    model: str
    lens: str
    parts: Mapping[int, Sequence[Path]]
    facts: Mapping[int, Mapping[str, str | float]] = field(default_factory=dict)
    missing: Sequence[int] = ()

    @property
    def made_from(self) -> str:
        """A name for exactly these parts and facts."""
        names = [(step, [path.name for path in paths], dict(self.facts[step])) for step, paths in self.parts.items()]
        text = repr((self.model, self.lens, names, list(self.missing)))
        return hashlib.sha256(text.encode()).hexdigest()


class StepReader:
    """Reads the results of steps; a whole series that fits the budget only once."""

    def __init__(self, gathering: Gathering, at_once: int = AT_ONCE) -> None:
        self.gathering = gathering
        sizes = [sum(path.stat().st_size for path in paths) for paths in gathering.parts.values()]
        self.at_once = max(1, at_once // max([1, *sizes]))
        """How many steps the budget holds."""
        self.keeps = sum(sizes) <= at_once
        self.kept: dict[int, tuple[dict[str, xr.Dataset], str]] = {}

    def read(self, step: int) -> tuple[dict[str, xr.Dataset], str]:
        """A step's nodes, or the reason why there are none."""
        if step in self.kept:
            return self.kept[step]
        parts = [read_part(path) for path in self.gathering.parts[step]]
        reason = next((part.left_out for part in parts if part.left_out), "")
        found = ({}, reason) if reason else (_union(parts), "")
        if self.keeps:
            self.kept[step] = found
        return found

    def outline(self) -> Outline:
        """What all steps have in common."""
        outline = Outline()
        for step in self.gathering.parts:
            outline.see(step, *self.read(step))
        return outline


def _union(parts: Sequence[Part]) -> dict[str, xr.Dataset]:
    """The blocks of one step as one: nodes side by side, attributes they agree on.

    A variable that several blocks hold stays if they agree: what sums up a whole result, no block can know.
    """
    if len(parts) == 1:
        return dict(parts[0].nodes)
    nodes: dict[str, list[xr.Dataset]] = {}
    for part in parts:
        for path, node in part.nodes.items():
            nodes.setdefault(path, []).append(node)
    return {
        path: xr.merge(_agreeing(found), "no_conflicts", "exact", combine_attrs="drop_conflicts")
        for path, found in nodes.items()
    }


def _agreeing(nodes: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Datasets without the data that differ between them."""
    first: dict[Any, xr.Variable] = {}
    differing = {
        name
        for node in nodes
        for name in node.data_vars
        if not same_values(first.setdefault(name, node.variables[name]), node.variables[name])
    }
    return [node.drop_vars(differing & set(node.data_vars)) for node in nodes]


def series_tree(gathering: Gathering) -> xr.DataTree:
    """All steps of a lens on one model as one tree, in memory.

    Returns
    -------
    DataTree
        The lens's own nodes, every variable with leading axes `model` (of length 1) and `step`; at the root also
        `content_hash`, `source`, `revision` and `identical_to` of each step. Steps to which the lens did not apply are
        left out; the attribute `left_out` says why.
    """
    reader = StepReader(gathering)
    outline = reader.outline()
    arrays = {key: np.empty(shape, dtype) for key, (shape, dtype) in _stacked(outline).items()}
    _fill(arrays, outline, reader)
    return _tree(gathering, outline, arrays)


def _stacked(outline: Outline) -> dict[tuple[str, str], tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of every variable that is stacked along `step`: all but coordinates that are always the same."""
    return {
        (path, one.name): ((1, len(outline.steps), *one.shape), one.dtype)
        for path, variables in outline.common().items()
        for one in variables
        if one.fixed is None
    }


def _fill(arrays: Arrays, outline: Outline, reader: StepReader) -> None:
    """Put the values of every step into its place, some steps at a time."""
    for start in range(0, len(outline.steps), reader.at_once):
        steps = outline.steps[start : start + reader.at_once]
        found = [reader.read(step)[0] for step in steps]
        for (path, name), array in arrays.items():
            values = np.stack([nodes[path].variables[name].values for nodes in found])
            array[0, start : start + len(steps)] = values.astype(array.dtype, copy=False)


def _tree(gathering: Gathering, outline: Outline, arrays: Arrays) -> xr.DataTree:
    """The tree around the arrays: axes, facts about each step, attributes."""
    leading = {"model": [gathering.model], "step": np.asarray(outline.steps, dtype=np.int64)}
    nodes = {path: xr.Dataset() for path in outline.nodes}
    for path, common in outline.common().items():
        variables = {
            one.name: xr.Variable((*LEADING, *one.dims), arrays[path, one.name], one.attrs)
            if one.fixed is None
            else one.fixed
            for one in common
        }
        node = outline.nodes[path]
        dataset = xr.Dataset(variables, attrs=node.attributes()).set_coords(node.coords & set(variables))
        nodes[path] = dataset.assign_coords(leading)
    root = nodes.pop("", xr.Dataset()).assign_coords(leading)
    names = list(gathering.facts[outline.steps[0]]) if outline.steps else []
    facts = {name: (LEADING, np.asarray([[gathering.facts[step][name] for step in outline.steps]])) for name in names}
    attributes = {
        **root.attrs,
        "lens": gathering.lens,
        "model": gathering.model,
        "made_from": gathering.made_from,
        "left_out": "; ".join(f"step {step}: {reason}" for step, reason in outline.reasons.items()),
        "left_out_variables": ", ".join(outline.left_out()),
        "missing_steps": ", ".join(map(str, gathering.missing)),
    }
    return xr.DataTree.from_dict({"/": root.assign(facts).assign_attrs(attributes), **nodes})


def write_group(gathering: Gathering, target: str, at_once: int = AT_ONCE) -> list[str]:
    """Write a group in place of the one before it; returns what to tell the user of it.

    `at_once` bytes of results are held at a time, or one step if that is larger.
    """
    place = Path(target)
    temporary = place.with_name(f"{TEMPORARY}{place.name}")
    replaced = place.with_name(f"{TEMPORARY}old-{place.name}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary, replaced)
        notes = _write(gathering, temporary, at_once)
        if place.exists():
            place.rename(replaced)
        temporary.rename(place)
    except OSError as problem:
        if replaced.exists() and not place.exists():
            replaced.rename(place)
        _remove(temporary, quiet=QUIET)
        raise StoreError(
            f"cannot write the group '{place}': {problem.strerror or problem}; all finished results are kept, run the "
            "sweep again"
        ) from problem
    finally:
        _remove(temporary, replaced)
    return notes


def _write(gathering: Gathering, place: Path, at_once: int) -> list[str]:
    """Lay a group out and put the values in; returns what is special about it."""
    dask_array: Any = import_module("dask.array")
    zarr: Any = import_module("zarr")
    reader = StepReader(gathering, at_once)
    outline = reader.outline()
    stacked = _stacked(outline)
    to_come = {
        key: dask_array.empty(shape, dtype=dtype, chunks=_chunks(shape, dtype, reader.at_once))
        for key, (shape, dtype) in stacked.items()
    }
    tree = _tree(gathering, outline, to_come)
    tree.to_zarr(place, mode="w", consolidated=False, zarr_format=2, write_inherited_coords=True, compute=False)
    group = zarr.open_group(place, mode="r+", zarr_format=2, use_consolidated=False)
    _fill({(path, name): group[f"{path}/{name}".lstrip("/")] for path, name in stacked}, outline, reader)
    zarr.consolidate_metadata(place, zarr_format=2)
    (place / FOLDER_SEAL).write_text(folder_digest(place), encoding="ascii")
    left_out, versions = outline.left_out(), outline.versions()
    notes = [f"leaves out {', '.join(left_out)}"] if left_out else []
    return notes + ([f"joins results of headspan {' and '.join(versions)}"] if len(versions) > 1 else [])


def _chunks(shape: tuple[int, ...], dtype: np.dtype[Any], steps: int) -> tuple[Any, ...]:
    """Pieces of an array on disk: as many steps as are put in at a time, and these whole unless they are large."""
    together = min(steps, shape[1])
    whole = together * prod(shape[2:]) * dtype.itemsize <= LARGEST_CHUNK
    if whole:
        return (1, together, *shape[2:])
    dask_core: Any = import_module("dask.array.core")
    asked = (1, together, *("auto" for _ in shape[2:]))
    found: tuple[Any, ...] = dask_core.normalize_chunks(asked, shape, limit=LARGEST_CHUNK, dtype=dtype)
    return found


def _remove(*folders: Path, quiet: int = 1) -> None:
    """Remove folders, until none has come back at `quiet` looks in a row."""
    calm = 0
    for _ in range(PATIENCE):
        there = [folder for folder in folders if folder.exists()]
        for folder in there:
            shutil.rmtree(folder, ignore_errors=True)
        calm = 0 if there else calm + 1
        if calm >= quiet:
            return
        time.sleep(PAUSE)
