"""What the steps of a series have in common: which variables can be joined along `step`, and with what shape.

Steps are shown to an outline one by one. It keeps shapes, attributes and the values of coordinates, and no other
values, so that it is small however many steps there are.

A variable is joined if every step has it with the same dims and shape. A coordinate that is the same at every step has
no axis `step`; index coordinates must be (join="exact"). Whatever else a step holds is left out, and named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from headspan.errors import StoreError
from headspan.storage import Nodes


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
