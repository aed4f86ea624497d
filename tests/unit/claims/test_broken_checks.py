"""Checks that are broken on purpose are caught: a verdict hangs on the functions that its claim is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest
from torch import Tensor

from headspan.findings.claims import Claim, examined
from headspan.findings.claims.ledger import CHAPTERS

FEW = {
    ("chapter_2_information", "kl_divergence"): "2.2d",
    ("chapter_2_information", "mutual_information"): "2.2i",
    ("chapter_4", "entropy_change"): "4.2.2a",
    ("chapter_5_exponentials", "lognormal_mean"): "5.1a",
    ("chapter_5_ratios", "sphere_ratio_mean"): "5.3.1a",
    ("chapter_6_alignment", "best_alignment"): "6.29b",
    ("chapter_6_scores", "score_moments"): "6.3*",
    ("seed_001", "projection_kernel"): "S1.1",
}
"""A few functions, each with a claim that cannot do without it; the slow test below takes them all."""


def broken(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with every number of its result a tenth too large."""

    def off(value: Any) -> Any:
        if isinstance(value, Tensor | float | int) and not isinstance(value, bool):
            return value * 1.1
        if isinstance(value, tuple):
            return type(value)(*map(off, value)) if hasattr(value, "_fields") else tuple(map(off, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            own = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return dataclasses.replace(value, **{name: off(part) for name, part in own.items()})
        return value

    return lambda *args, **kwargs: off(function(*args, **kwargs))


def rows(module: str) -> list[Claim]:
    found = vars(import_module(f"headspan.findings.claims.{module}")).values()
    return [row for row in found if isinstance(row, Claim) and row.check is not None and not row.needs]


def functions() -> list[tuple[str, str]]:
    """Every function of ours that a module of claims computes with."""
    return [
        (module, name)
        for module in CHAPTERS
        for name, value in vars(import_module(f"headspan.findings.claims.{module}")).items()
        if isinstance(value, FunctionType) and value.__module__.startswith(("headspan.gaussian", "headspan.subspaces"))
    ]


@pytest.mark.parametrize(("place", "claim"), FEW.items(), ids=lambda value: str(value))
def test_a_function_that_is_off_by_a_tenth_fails_its_claim(
    place: tuple[str, str], claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = place
    (row,) = (row for row in rows(module) if row.id == claim)
    assert examined(row).verdict == "pass"
    own = import_module(f"headspan.findings.claims.{module}")
    monkeypatch.setattr(own, name, broken(getattr(own, name)))
    assert examined(row).verdict == "fail"


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), functions())
def test_no_function_can_be_off_without_a_claim_noticing(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = import_module(f"headspan.findings.claims.{module}")
    monkeypatch.setattr(own, name, broken(getattr(own, name)))
    assert any(examined(row).verdict == "fail" for row in rows(module))
