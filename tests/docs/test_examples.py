"""Every example in a docstring runs and prints what it says, and every public name of `headspan` has one."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import headspan
from headspan.lenses.catalog import lenses

SOURCE = Path(headspan.__file__).parents[1]
PUBLIC = sorted(name for name in dir(headspan) if callable(getattr(headspan, name)) and name != "HeadspanError")


def module_name(path: Path) -> str:
    """`headspan.lenses.ranks` for its `__init__.py`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = sorted(module_name(path) for path in (SOURCE / "headspan").rglob("*.py") if ">>> " in path.read_text())


WHOLE_REPORTS = ("headspan.explorer.reports",)
"""Modules whose examples make a whole report, which other tests do too."""
EXAMPLES = [pytest.param(name, marks=[pytest.mark.slow] * (name in WHOLE_REPORTS)) for name in MODULES]


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_of_a_module_print_what_they_say(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testmod(import_module(module))
    assert attempted
    assert not failed


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(headspan, name)) or "")


def test_all_that_offers_a_public_name_is_tried() -> None:
    defining = {inspect.unwrap(getattr(headspan, name)).__module__ for name in PUBLIC}
    packages = {lens.package for lens in lenses().values() if lens.package.startswith("headspan.")}
    assert defining | packages | {"headspan", "headspan.result", "headspan.progress"} <= set(MODULES)
