"""Trials of models can fail: on untrained, shuffled or broken input a claim about a trained model does not pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headspan.checkpoint import Checkpoint, open_checkpoint
from headspan.checkpoint.synthetic import synthetic
from headspan.ledger import (
    Examination,
    all_claims,
    chapter_4,
    chapter_7,
    chapter_8,
    chapter_8_mistral,
    examine,
    running,
)
from headspan.ledger import document_001 as kernels
from headspan.ledger import lab_numbers as lab
from headspan.ledger.models import hub_test, identity_extremes
from headspan.ledger.trial import Draws


def verdict(name: str, **models: Checkpoint) -> Examination:
    (claim,) = (claim for claim in all_claims() if claim.id == name)
    found = examine(claim, models=models)
    assert not found.reason, "a control fails by its numbers, not by an error"
    return found


@pytest.fixture(scope="module")
def untrained() -> Checkpoint:
    return synthetic("gpt2", seed=5, layers=3)


@pytest.fixture(scope="module")
def storyteller(stories: Path) -> Checkpoint:
    return open_checkpoint(str(stories))


LEARNED = {"S4.1": "medium_excess", "S4.3": "rise_share", "S4.4": "offset_share", "S4.5": "keys_without_bottom",
           "S4.6": "plateau_curvature"}  # fmt: skip


@pytest.mark.parametrize(("name", "number"), LEARNED.items())
def test_kept_numbers_are_compared_and_never_called_a_pass(
    name: str, number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict(name).verdict == "kept numbers"
    kept = json.loads(lab.KEPT.read_text(encoding="utf-8"))
    row = kept["runs"]["default"][0]
    row[number] = 1.0 - row[number]
    file = tmp_path / "runs.json"
    file.write_text(json.dumps(kept))
    monkeypatch.setattr(lab, "KEPT", file)
    assert verdict(name).verdict == "fail"


def test_queries_and_keys_of_untrained_heads_are_no_closer_than_random(untrained: Checkpoint) -> None:
    assert verdict("S0.5").verdict == "baseline"
    assert verdict("S0.5", gpt2=untrained).verdict == "fail"


def test_row_spaces_that_share_a_direction_do_not_decompose_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    from headspan.ledger import document_000 as spaces

    plain = spaces._queries_and_keys

    def shared(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        W_Q, W_K = plain(*args)
        W_K[:, :, 0] = W_Q[:, :, 0]
        return W_Q, W_K

    monkeypatch.setattr(spaces, "_queries_and_keys", shared)
    assert verdict("S0.4").verdict == verdict("S0.6").verdict == "fail"


@pytest.mark.slow
def test_shuffled_labels_find_no_classes(gpt2_attention: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpt2 = open_checkpoint(str(gpt2_attention))
    assert verdict("S1.11", gpt2=gpt2).verdict == "pass"
    from headspan.heads.classes import HeadClasses

    order = np.random.default_rng(2).permutation([f"L{i // 12}H{i % 12}" for i in range(144)])
    drawn = HeadClasses({"any": tuple(map(str, order[:26]))}, "shuffled")
    monkeypatch.setattr("headspan.ledger.models.head_classes", lambda *_: drawn)
    assert verdict("S1.11", gpt2=gpt2).verdict == "fail"


@pytest.mark.slow
def test_heads_at_random_are_no_hubs(gpt2_attention: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpt2 = open_checkpoint(str(gpt2_attention))
    assert verdict("S1.12", gpt2=gpt2).verdict == "pass"
    order = np.random.default_rng(0).permutation([f"L{i // 12}H{i % 12}" for i in range(12, 132)])
    others = [str(head) for head in order if head != "L4H7"]
    monkeypatch.setattr(kernels, "identity_extremes", lambda *_: (["L4H7", *others[:6]], others[6:13]))
    assert verdict("S1.12", gpt2=gpt2).verdict == "fail"


def test_a_flat_spectrum_scales_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def flat(draws: Draws, n: int = 128) -> torch.Tensor:
        return draws.haar(n).reshape(n, 8, n // 8).transpose(0, 1)

    assert verdict("7.2.2d").verdict == "pass"
    monkeypatch.setattr(chapter_7, "_sparse_matrix", flat)
    assert verdict("7.2.2d").verdict == "fail"


def test_pooling_that_averages_keys_loses_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    from headspan.lenses.words import pooled

    assert verdict("8.2a").verdict == "pass"
    monkeypatch.setattr(chapter_8, "pooled", lambda A, groups, pooling: pooled(A.mT.contiguous(), groups, pooling).mT)
    assert verdict("8.2a").verdict == "fail"


def test_scaling_queries_alone_is_not_scaling_both(monkeypatch: pytest.MonkeyPatch) -> None:
    from headspan.runtime.interventions import HeadSpectra, SpectrumChange

    class QueriesOnly:
        name = "queries only"

        def __init__(self, alpha: float) -> None:
            self.alpha = alpha

        def apply(self, edits: Any) -> None:
            SpectrumChange(HeadSpectra.of(edits.model, ("Q",)), "half", lambda S: self.alpha * S).apply(edits)

        def notes(self, model: Any) -> tuple[str, ...]:
            return ()

    assert verdict("8.5a").verdict == "pass"
    monkeypatch.setattr(running, "ScaledLogits", QueriesOnly)
    assert verdict("8.5a").verdict == "fail"


def test_without_transformers_a_claim_about_running_models_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headspan.runtime.find_spec", lambda _: None)
    (claim,) = (claim for claim in all_claims() if claim.id == "8.5a")
    found = examine(claim)
    assert found.verdict == "skipped"
    assert "demo was given, but running a model needs transformers" in found.reason


def law_of_any_token(laws: Callable[..., Any]) -> Callable[..., Any]:
    def alike(checkpoint: Checkpoint) -> tuple[torch.Tensor, torch.Tensor]:
        V, P = laws(checkpoint)
        return V, P.mean(0).expand_as(P)

    return alike


def test_a_next_token_that_does_not_depend_on_the_last_is_no_bigram_model(
    storyteller: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chapter_4, "next_token_laws", law_of_any_token(chapter_4.next_token_laws))
    assert verdict("4.2.3", stories=storyteller).verdict == "differs"


def test_attention_that_follows_cosines_is_noticed(storyteller: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapter_8_mistral, "cosine_correlations", lambda _: np.full(40, 0.6))
    assert verdict("8.3", stories=storyteller).verdict == "differs"


def test_maps_as_the_thesis_describes_them_pass(storyteller: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    course = {
        "low": np.ones(8),
        "top": np.full(8, 0.09),
        "diagonal": np.array([0.5, 0.3, 0.1, 0.1, 0.1, 0.1, 0.2, 0.3]),
        "spread": np.array([0.3, 0.5, 0.9, 0.9, 0.9, 0.8, 0.5, 0.3]),
        "within": np.full(8, 0.1),
    }
    monkeypatch.setattr(chapter_8_mistral, "few_shot_maps", lambda _: course)
    assert verdict("8.2b", stories=storyteller).verdict == "pass"
    monkeypatch.setattr(chapter_8_mistral, "few_shot_maps", lambda _: {**course, "within": np.full(8, -0.1)})
    assert verdict("8.2b", stories=storyteller).verdict == "differs"


def test_text_that_is_likelier_at_a_half_is_noticed(storyteller: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    likelihoods = {"unmodified": -1.0, "alpha 0.5": -1.5, "alpha 2": -3.0}
    monkeypatch.setattr(chapter_8_mistral, "written_likelihoods", lambda _: likelihoods)
    assert verdict("8.5d", stories=storyteller).verdict == "differs"


def test_the_most_negative_heads_of_an_untrained_model_are_no_hubs(untrained: Checkpoint) -> None:
    lowest, _ = identity_extremes(untrained, 5)
    assert hub_test(untrained, lowest).p > 0.05
