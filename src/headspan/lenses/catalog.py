"""Every lens there is, by name: the folders beside this file, and what other packages register.

A folder is a lens if its package holds a `LENS` and the public function of the lens's name. Other packages name theirs
under the entry point `headspan.lenses`; the value is such a package. Looking loads nothing heavy.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import ModuleType

from headspan import lenses as folder
from headspan.errors import ArgumentError
from headspan.result import Lens

GROUP = "headspan.lenses"


@cache
def lenses() -> Mapping[str, Lens]:
    """Every lens by name, in the order in which a report is read."""
    found = [package.LENS for package in _packages() if hasattr(package, "LENS")]
    return {lens.name: lens for lens in sorted(found, key=lambda lens: (lens.order, lens.name))}


def _packages() -> Iterator[ModuleType]:
    for module in iter_modules(folder.__path__):
        if module.ispkg:
            yield import_module(f"{folder.__name__}.{module.name}")
    for entry in entry_points(group=GROUP):
        try:
            yield entry.load()
        except Exception as problem:  # noqa: BLE001 a package that headspan does not know may fail in any way
            warnings.warn(f"the lens {entry.name!r} of {entry.value} cannot be loaded: {problem}", stacklevel=2)


def lens(name: str) -> Lens:
    """The lens of that name."""
    if name not in lenses():
        raise ArgumentError(f"there is no lens {name!r}; lenses are {', '.join(lenses())}")
    return lenses()[name]
