"""Interventions say what they cannot change in a model, and refuse in one line what cannot be done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from headspan.dims import HeadLabel
from headspan.errors import ArgumentError, HeadspanError, ShapeError, UnsupportedModel
from headspan.runtime import RunnableModel
from headspan.runtime.interventions import (
    AblatedHeads,
    HeadSpectra,
    Intervention,
    ScaledLogits,
    SwappedHeads,
    WithoutSubspace,
    intervened,
)
from headspan.subspaces import random_subspaces
from tests.runtime.test_forward import runnable
from tests.runtime.test_interventions import BY_NAME, bits


def test_what_is_not_scaled_is_said() -> None:
    for name, words in (
        ("bloom", "alibi position terms"),
        ("gemma2", "capped"),
        ("gpt_oss", "sinks"),
        ("mpt-clipped", "clipped"),
        ("gpt2", "biases are scaled"),
        ("deepseek_v2", "turned keys"),
    ):
        notes = ScaledLogits(2.0).notes(runnable(BY_NAME[name]))
        assert any(words in note for note in notes), (name, notes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda model: ScaledLogits(0.0), "alpha needs to be a number above 0"),
        (lambda model: ScaledLogits(float("nan")), "alpha needs to be a number above 0"),
        (lambda model: HeadSpectra.of(model).truncated(99), "rank needs to be in 1..6"),
        (lambda model: HeadSpectra.of(model).truncated(0), "rank needs to be in 1..6"),
        (lambda model: AblatedHeads(("L9H0",)), "head L9H0 does not exist; this model has L0H0 to L1H3"),
        (lambda model: AblatedHeads(("L0H7",)), "does not exist"),
        (lambda model: AblatedHeads(()), "no head was named"),
        (lambda model: AblatedHeads(("L0H0",), {HeadLabel(1, 0): torch.zeros(6)}), "no mean for L0H0"),
        (lambda model: SwappedHeads("L0H0", "L0H0"), "two different heads"),
        (lambda model: WithoutSubspace("L0H0", "K", random_subspaces((), 24, 2, 0)), "name the kv head L0K0"),
        (lambda model: WithoutSubspace("L0K0", "Q", random_subspaces((), 24, 2, 0)), "belongs to a head"),
        (lambda model: HeadSpectra.of(model, heads=("L0H0",)), "is read by L0H0, L0H1; choose all"),
    ],
)
def test_a_wrong_choice_is_refused_in_one_line(make: Callable[[RunnableModel], Intervention], words: str) -> None:
    _assert_refused(make, ArgumentError, words)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda model: WithoutSubspace("L0H0", "Q", random_subspaces((), 9, 2, 0)), "lies in R\\^9"),
        (lambda model: HeadSpectra.of(model).with_values(lambda S: S[:1]), "new singular values have shape"),
    ],
)
def test_a_wrong_shape_is_refused_in_one_line(make: Callable[[RunnableModel], Intervention], words: str) -> None:
    _assert_refused(make, ShapeError, words)


def test_a_text_that_is_no_head_is_refused() -> None:
    _assert_refused(lambda model: AblatedHeads(("nonsense",)), HeadspanError, "is not a head")


def _assert_refused(make: Callable[[RunnableModel], Intervention], error: type[HeadspanError], words: str) -> None:
    model = runnable(BY_NAME["llama"])
    before = bits(model)
    with pytest.raises(error, match=words), intervened(model, make(model)):
        pass
    assert bits(model) == before


def test_heads_that_share_one_gain_cannot_be_scaled_apart() -> None:
    model = runnable(BY_NAME["qwen3"])
    with pytest.raises(ArgumentError, match="share one gain"), intervened(model, ScaledLogits(2.0, ("L0H0",))):
        pass


def test_latent_spaces_are_not_decomposed() -> None:
    model = runnable(BY_NAME["deepseek_v2"])
    with pytest.raises(UnsupportedModel, match="latent space"):
        HeadSpectra.of(model)
    with pytest.raises(HeadspanError, match="cannot be swapped"), intervened(model, SwappedHeads("L0H0", "L0H1")):
        pass
