"""One task's result as one file, written whole or not at all, the same bytes for the same result.

A part is an archive (`headspan.storage`) of all variables of a result. It is written to a temporary name, flushed to
the disk, and renamed; a file that has its name is finished. It holds no time and no name of a machine, so two workers
that do the same task write the same bytes.

Why not Zarr here: a tree of 771 small variables takes 6 s of CPU time to write as Zarr and 0.04 s as one archive, while
the lens that makes it takes 0.1 s. Zarr is written once per series, of all its parts (`groups`).

What the steps of a series have in common: which variables can be joined along `step`, and with what shape.

Steps are shown to an outline one by one. It keeps shapes, attributes and the values of coordinates, and no other
values, so that it is small however many steps there are.

A variable is joined if every step has it with the same dims and shape. A coordinate that is the same at every step has
no axis `step`; index coordinates must be (join="exact"). Whatever else a step holds is left out, and named.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xarray as xr

from headspan.errors import HeadspanError, StoreError
from headspan.storage import Nodes, archive_is_whole, read_archive, write_archive

SCHEMA = "headspan.sweep-part/2"
TEMPORARY = ".part-"
"""Beginning of the names of files that are not finished."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
OF_THE_SOURCE = ("model", "revision", "before_model", "before_revision")
"""Attributes that say where weights came from. A part belongs to the weights, wherever they lie."""


@dataclass(frozen=True)
class Part:
    """A result by node path (the root is ""), or the reason why there is none; and what was warned of."""

    nodes: Mapping[str, xr.Dataset] = field(default_factory=dict)
    left_out: str = ""
    warnings: Sequence[str] = ()


def part_nodes(data: xr.DataTree) -> dict[str, xr.Dataset]:
    """A result's tree as datasets by path, without the attributes of its source."""
    nodes = {}
    for node in data.subtree:
        dataset = node.to_dataset(inherit=False)
        dataset.attrs = {key: value for key, value in dataset.attrs.items() if key not in OF_THE_SOURCE}
        if dataset.variables or dataset.attrs:
            nodes[node.path.strip("/")] = dataset
    return nodes


def write_part(path: Path, part: Part) -> None:
    """Write a part under its final name."""
    with _new_file(path) as file:
        write_archive(file, part.nodes, schema=SCHEMA, left_out=part.left_out, warnings=list(part.warnings))


def write_text(path: Path, text: str) -> None:
    """Write a small text file in the same way."""
    with _new_file(path) as file:
        file.write(f"{text}\n".encode())


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the name `path` if the block succeeds, all its bytes on the disk, and is removed if not."""
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as problem:
        message = f"cannot write '{path}': {problem.strerror or problem}"
        raise (StoreError if problem.errno in FULL else HeadspanError)(message) from problem
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_part(path: Path) -> Part:
    """A finished part; refused with its name if it is damaged or another version's."""
    try:
        nodes, header = read_archive(path)
        written, left_out, warned = header["schema"], header["left_out"], header["warnings"]
    except (HeadspanError, KeyError) as problem:
        raise StoreError(
            f"the result '{path}' is damaged ({problem}); delete it and run the sweep again to compute it anew"
        ) from problem
    if written != SCHEMA:
        raise StoreError(
            f"the result '{path}' is in the format {written!r}, not {SCHEMA!r}; it was left as it is: sweep into "
            "another store"
        )
    return Part(nodes, left_out, warned)


def is_finished(path: Path) -> bool:
    """Whether a part is there with all its bytes, as they were written."""
    return archive_is_whole(path)


def same_values(one: xr.Variable, other: xr.Variable) -> bool:
    """Whether two variables agree in dims and values, undefined ones included."""
    equal = np.array_equal(one.values, other.values, equal_nan=one.dtype.kind == other.dtype.kind == "f")
    return one.dims == other.dims and bool(equal)


@dataclass
class VariableOutline:
    """One variable as the steps seen so far have it."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: dict[Any, Any]
    fixed: xr.Variable | None
    """The values, of a coordinate that has been the same so far."""
    seen: int = 0
    fits: bool = True
    differs_at: int | None = None
    """The first step at which the values of an index are others."""

    @classmethod
    def of(cls, name: str, variable: xr.Variable, is_coordinate: bool) -> VariableOutline:
        dims = tuple(map(str, variable.dims))
        fixed = variable.copy(deep=True) if is_coordinate else None
        return cls(name, dims, variable.shape, variable.dtype, variable.attrs, fixed)

    def see(self, step: int, variable: xr.Variable) -> None:
        """Take one more step into account."""
        self.seen += 1
        self.fits &= (variable.dims, variable.shape) == (self.dims, self.shape)
        self.dtype = np.result_type(self.dtype, variable.dtype)
        if not self.fits or self.fixed is None or same_values(self.fixed, variable):
            return
        if self.dims != (self.name,):
            self.fixed = None
        elif self.differs_at is None:
            self.differs_at = step


@dataclass
class NodeOutline:
    """One node as the steps seen so far have it."""

    coords: frozenset[str]
    variables: dict[str, VariableOutline] = field(default_factory=dict)
    attrs: list[dict[Any, Any]] = field(default_factory=list)

    def see(self, step: int, node: xr.Dataset) -> None:
        """Take one more step into account."""
        self.attrs.append(node.attrs)
        for key, variable in node.variables.items():
            name = str(key)
            if name not in self.variables:
                self.variables[name] = VariableOutline.of(name, variable, name in self.coords)
            self.variables[name].see(step, variable)

    def attributes(self) -> dict[Any, Any]:
        """What the steps agree on."""
        return xr.merge([xr.Dataset(attrs=attrs) for attrs in self.attrs], combine_attrs="drop_conflicts").attrs


@dataclass
class Outline:
    """What the steps seen so far have in common, and why the others have nothing to join."""

    steps: list[int] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    nodes: dict[str, NodeOutline] = field(default_factory=dict)

    def see(self, step: int, nodes: Nodes, reason: str = "") -> None:
        """Take one more step into account; with a reason, one to which the lens did not apply."""
        if reason:
            self.reasons[step] = reason
            return
        self.steps.append(step)
        for path, node in nodes.items():
            self.nodes.setdefault(path, NodeOutline(frozenset(map(str, node.coords)))).see(step, node)

    def common(self) -> dict[str, list[VariableOutline]]:
        """The variables that every step has alike, by node."""
        found = {}
        for path, node in self.nodes.items():
            if self._whole(node):
                found[path] = [one for one in node.variables.values() if self._fits(one)]
                for one in found[path]:
                    self._check_index(path, one)
        return found

    def left_out(self) -> list[str]:
        """Nodes and variables that not every step has alike."""
        names = [path for path, node in self.nodes.items() if not self._whole(node)]
        names += [
            f"{path}/{one.name}".lstrip("/")
            for path, node in self.nodes.items()
            for one in node.variables.values()
            if self._whole(node) and not self._fits(one)
        ]
        return sorted(names)

    def versions(self) -> list[str]:
        """The versions of headspan that computed the steps."""
        found = {attrs.get("headspan_version") for node in self.nodes.values() for attrs in node.attrs}
        return sorted(str(version) for version in found if version is not None)

    def _whole(self, node: NodeOutline) -> bool:
        return len(node.attrs) == len(self.steps)

    def _fits(self, variable: VariableOutline) -> bool:
        return variable.fits and variable.seen == len(self.steps)

    def _check_index(self, path: str, variable: VariableOutline) -> None:
        if variable.differs_at is not None:
            raise StoreError(
                f"steps {self.steps[0]} and {variable.differs_at} cannot be joined: '{path}/{variable.name}' differs "
                "between them; were they computed by different versions?"
            )
