"""From finished parts to one Zarr group per model and lens, with leading dims `model` and `step`.

1. The parts of a lens are read step by step; a step of which a block is missing is left out, and named.
2. Index coordinates must be the same at every step (join="exact"); other variables get the two leading axes. A variable
   that has another shape at some steps cannot be joined; it is left out, and named in `left_out_variables`.
3. The group is written beside its final place and renamed. It is made from the parts alone and can be made again from
   them at any time; `made_from` says from which.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headspan.errors import StoreError
from headspan.sweep.part_file import TEMPORARY, Part, read_part

LEADING = ("model", "step")
Facts = Mapping[str, Sequence[Any]]


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


def gathered(gathering: Gathering) -> xr.DataTree:
    """All steps of a lens on one model as one tree, in memory.

    Returns
    -------
    DataTree
        The lens's own nodes, every variable with leading axes `model` (of length 1) and `step`; at the root also
        `content_hash`, `source`, `revision` and `identical_to` of each step. Steps at which the lens had nothing to say
        are left out; the attribute `left_out` says why.
    """
    found, reasons = {}, {}
    for step, paths in gathering.parts.items():
        parts = [read_part(path) for path in paths]
        reason = next((part.left_out for part in parts if part.left_out), "")
        if reason:
            reasons[step] = reason
        else:
            found[step] = _united(parts)
    notes: list[str] = []
    nodes = {path: _joined(path, found, gathering.model, notes) for path in _paths(found)}
    root = nodes.pop("", xr.Dataset())
    root = root.assign_coords(model=[gathering.model], step=np.asarray(list(found), dtype=np.int64))
    names = list(gathering.facts[next(iter(found))]) if found else []
    facts = {name: (LEADING, np.asarray([[gathering.facts[step][name] for step in found]])) for name in names}
    attributes = {
        **root.attrs,
        "lens": gathering.lens,
        "model": gathering.model,
        "made_from": gathering.made_from,
        "left_out": "; ".join(f"step {step}: {reason}" for step, reason in reasons.items()),
        "left_out_variables": ", ".join(sorted(notes)),
        "missing_steps": ", ".join(map(str, gathering.missing)),
    }
    return xr.DataTree.from_dict({"/": root.assign(facts).assign_attrs(attributes), **nodes})


def _united(parts: Sequence[Part]) -> dict[str, xr.Dataset]:
    """The blocks of one step as one: nodes side by side, attributes they agree on."""
    nodes: dict[str, xr.Dataset] = {}
    for part in parts:
        for path, node in part.nodes.items():
            nodes[path] = node if path not in nodes else xr.merge([nodes[path], node], combine_attrs="drop_conflicts")
    return nodes


def _paths(found: Mapping[int, Mapping[str, xr.Dataset]]) -> list[str]:
    return list(dict.fromkeys(path for nodes in found.values() for path in nodes))


def _joined(path: str, found: Mapping[int, Mapping[str, xr.Dataset]], model: str, notes: list[str]) -> xr.Dataset:
    """One node of all steps, stacked along `step`."""
    steps = [step for step, nodes in found.items() if path in nodes]
    if len(steps) < len(found):
        notes.append(path)
        return xr.Dataset()
    nodes = [found[step][path] for step in steps]
    variables: dict[str, xr.Variable] = {}
    for name in dict.fromkeys(str(name) for node in nodes for name in node.variables):
        held = [node.variables.get(name) for node in nodes]
        first = held[0]
        if first is None or any(one is None or (one.dims, one.shape) != (first.dims, first.shape) for one in held):
            notes.append(f"{path}/{name}".lstrip("/"))
        elif first.dims == (name,):
            _check_same_index(path, name, steps, held)
            variables[name] = first
        else:
            stacked = np.stack([one.values for one in held if one is not None])[np.newaxis]
            variables[name] = xr.Variable((*LEADING, *first.dims), stacked, first.attrs)
    coords = {str(name) for name in nodes[0].coords if name in variables}
    leading = {"model": [model], "step": np.asarray(steps, dtype=np.int64)}
    attributes = xr.merge([xr.Dataset(attrs=node.attrs) for node in nodes], combine_attrs="drop_conflicts").attrs
    return xr.Dataset(variables, attrs=attributes).set_coords(coords).assign_coords(leading)


def _check_same_index(path: str, name: str, steps: Sequence[int], held: Sequence[xr.Variable | None]) -> None:
    for step, one in zip(steps, held, strict=True):
        if one is not None and held[0] is not None and not np.array_equal(one.values, held[0].values):
            raise StoreError(
                f"steps {steps[0]} and {step} cannot be joined: '{path}/{name}' differs between them; "
                "were they computed by different versions?"
            )


def write_group(gathering: Gathering, target: str) -> str:
    """Write a group in place of the one before it; returns notes for the user, or nothing."""
    place = Path(target)
    tree = gathered(gathering)
    temporary = place.with_name(f"{TEMPORARY}{place.name}")
    replaced = place.with_name(f"{TEMPORARY}old-{place.name}")
    place.parent.mkdir(parents=True, exist_ok=True)
    for leftover in (temporary, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        tree.to_zarr(temporary, mode="w", consolidated=True, zarr_format=2, write_inherited_coords=True)
        if place.exists():
            place.rename(replaced)
        temporary.rename(place)
    except OSError as problem:
        raise StoreError(
            f"cannot write the group '{place}': {problem.strerror or problem}; all finished results are kept, run the "
            "sweep again"
        ) from problem
    finally:
        for leftover in (temporary, replaced):
            shutil.rmtree(leftover, ignore_errors=True)
    return str(tree.attrs["left_out_variables"])
