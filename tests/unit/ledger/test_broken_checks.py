"""Checks that are broken on purpose are caught: a verdict hangs on the functions that its claim is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import import_module
from itertools import cycle
from types import FunctionType
from typing import Any

import pytest
from torch import Tensor

from headspan.ledger import Claim, all_claims, examine
from headspan.ledger.claim import DEMO, MODULES

FEW = {
    ("chapter_2_moments", "kl_divergence"): "2.2d",
    ("chapter_2_moments", "mutual_information"): "2.2i",
    ("chapter_4", "entropy_change"): "4.2.2a",
    ("chapter_5_exponentials", "lognormal_mean"): "5.1a",
    ("chapter_5_exponentials", "sphere_ratio_mean"): "5.3.1a",
    ("chapter_6_weights", "best_alignment"): "6.29b",
    ("chapter_6_scores", "score_moments"): "6.3*",
    ("document_001", "projection_kernel"): "S1.1",
    ("document_000", "pairwise_principal_angles"): "S0.8",
    ("chapter_4", "bigram_joint"): "4.2.3",
    ("chapter_7", "singular_values"): "7.2.2d",
    ("chapter_8", "pooled"): "8.2a",
    ("chapter_8_mistral", "attention_pattern"): "8.2b",
}
"""A few functions, each with a claim that cannot do without it; the slow test below takes them all."""

UNSEEN = {
    ("document_002", "random_layers"): "draws weights; the claim is about any",
    ("chapter_7", "random_layers"): "draws weights; tokens collapse at these scales too",
    ("chapter_7", "random_pattern"): "draws a pattern, whose rank has no scale",
    ("chapter_6_scores", "random_singular_values"): "draws weights; the claim is a bound",
    ("chapter_2_moments", "sample_moments"): "information has no scale",
    ("chapter_4", "sample_moments"): "rank and information have no scale",
    ("chapter_2_attention", "singular_vector_bound"): "Wedin's bound is far from reached",
    ("chapter_7", "layer_states"): "cosines have no scale",
    ("chapter_6_scores", "cosine_bound_violations"): "counts are held against none",
    ("chapter_7", "data_dependence"): "one covariance relative to another",
    ("document_004", "principal_angles"): "angles that are 0",
    ("document_000", "kernel_null_mean"): "used on a model alone",
    ("document_000", "kernel_null_variance"): "used on a model alone",
    ("chapter_8_mistral", "mp_quantile"): "used on a model alone",
    ("chapter_8_mistral", "singular_values"): "used on a model alone",
}
"""What cannot be noticed by a factor, and why."""
OURS = ("headspan.distributions", "headspan.subspaces", "headspan.statistics", "headspan.lenses")


def broken(function: Callable[..., Any], *factors: float) -> Callable[..., Any]:
    """The function with every number of its result multiplied by one of the factors, call after call."""
    next_factor = cycle(factors)

    def off(value: Any, factor: float) -> Any:
        if isinstance(value, Tensor | float | int) and not isinstance(value, bool):
            return value * factor
        if isinstance(value, tuple):
            parts = [off(part, factor) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            own = {field.name: off(getattr(value, field.name), factor) for field in dataclasses.fields(value)}
            return dataclasses.replace(value, **own)
        return value

    return lambda *args, **kwargs: off(function(*args, **kwargs), next(next_factor))


def rows(module: str) -> list[Claim]:
    """The claims of a module that are checked without a model of the user's."""
    own = f"headspan.ledger.{module}"
    checked = [row for row in all_claims() if row.check.__module__ == own]
    return [row for row in checked if row.otherwise or not row.needs or DEMO in row.models]


def functions() -> list[tuple[str, str]]:
    """Every function of ours that a module of claims computes with."""
    return [
        (module, name)
        for module in MODULES
        for name, value in vars(import_module(f"headspan.ledger.{module}")).items()
        if (module, name) not in UNSEEN and isinstance(value, FunctionType) and value.__module__.startswith(OURS)
    ]


@pytest.mark.parametrize(("place", "claim"), FEW.items(), ids=lambda value: str(value))
def test_a_function_that_is_off_by_a_tenth_fails_its_claim(
    place: tuple[str, str], claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = place
    (row,) = (row for row in rows(module) if row.id == claim)
    assert examine(row).verdict == row.at_best
    own = import_module(f"headspan.ledger.{module}")
    monkeypatch.setattr(own, name, broken(getattr(own, name), 1.1))
    assert examine(row).verdict == "fail"


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), functions())
def test_no_function_can_be_off_without_a_claim_noticing(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = import_module(f"headspan.ledger.{module}")
    monkeypatch.setattr(own, name, broken(getattr(own, name), 0.3, 3.0))
    assert any(examine(row).verdict == "fail" for row in rows(module))
