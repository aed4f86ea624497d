"""Claims about a model hold on the model, where it is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from headspan.checkpoint import Checkpoint, open_checkpoint
from headspan.checkpoint.synthetic import synthetic
from headspan.ledger import Claim, all_claims, examine
from headspan.ledger.claim import DEMO
from headspan.ledger.examination import evidence_text
from headspan.ledger.models import positions_of

TABLES = ("W_E", "MLP")


def about(name: str) -> list[Claim]:
    """Claims that are tried on a model where it alone is given: GPT-2 comes without token table and MLP."""
    return [
        claim
        for claim in all_claims()
        if name in claim.models and not (name == "gpt2" and any(part in claim.uses for part in TABLES))
    ]


@pytest.fixture(scope="module")
def gpt2(gpt2_attention: Path) -> Checkpoint:
    return open_checkpoint(str(gpt2_attention))


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> Checkpoint:
    return open_checkpoint(str(minilm))


@pytest.fixture(scope="module")
def storyteller(stories: Path) -> Checkpoint:
    return open_checkpoint(str(stories))


def passes(claim: Claim, name: str, model: Checkpoint) -> None:
    found = examine(claim, models={name: model})
    assert found.verdict == "pass", found.reason or (found.evidence and evidence_text(found.evidence))
    assert found.on == name


def test_every_model_named_is_one_that_is_tried() -> None:
    # A run of the lab is trained for the tests of the lab; Mistral-7B has tests of its own.
    tried = {"gpt2", "minilm", "stories", "lab", "mistral", DEMO}
    assert {name for claim in all_claims() for name in claim.models} <= tried


@pytest.mark.slow
@pytest.mark.parametrize("claim", about("gpt2"), ids=lambda claim: claim.id)
def test_gpt2_is_as_the_ledger_says(claim: Claim, gpt2: Checkpoint) -> None:
    passes(claim, "gpt2", gpt2)


@pytest.mark.parametrize("claim", about("minilm"), ids=lambda claim: claim.id)
def test_minilm_is_as_the_ledger_says(claim: Claim, encoder: Checkpoint) -> None:
    passes(claim, "minilm", encoder)


@pytest.mark.parametrize("claim", about("stories"), ids=lambda claim: claim.id)
def test_stories_stands_in_for_mistral(claim: Claim, storyteller: Checkpoint) -> None:
    if claim.id != "8.2b":
        return passes(claim, "stories", storyteller)
    found = examine(claim, models={"stories": storyteller})
    assert (found.verdict, found.on) == ("differs", "stories")
    return None


def test_a_model_is_measured_once(encoder: Checkpoint) -> None:
    assert positions_of(encoder) is positions_of(encoder)


@pytest.mark.parametrize(
    "claim",
    [claim for claim in all_claims() if claim.needs and not claim.otherwise and DEMO not in claim.models],
    ids=lambda claim: claim.id,
)
def test_without_its_model_a_claim_is_skipped(claim: Claim) -> None:
    found = examine(claim)
    assert found.verdict == "skipped"
    assert all(f"--model {name}=PATH" in found.reason for name in claim.models)


@pytest.mark.parametrize("name", ["S2.6", "S2.7", "S2.8", "S2.10", "S2.12", "S2.15"])
def test_claims_about_tokens_take_gpt2_where_it_has_a_token_table(name: str, encoder: Checkpoint) -> None:
    """Untrained weights show none of what was seen on GPT-2, so that the claim itself, tried as it stands, fails."""
    (claim,) = (claim for claim in all_claims() if claim.id == name)
    shape = {"model_type": "gpt2", "n_layer": 3, "n_head": 4, "n_embd": 64, "n_positions": 96, "vocab_size": 200}
    untrained = synthetic(shape, seed=3)
    found = examine(claim, models={"gpt2": untrained, "minilm": encoder})
    assert found.on == "gpt2"
    assert not found.reason
    assert found.verdict == "fail"


def test_a_checkpoint_without_the_parts_is_passed_over(gpt2: Checkpoint, encoder: Checkpoint) -> None:
    (claim,) = (claim for claim in all_claims() if claim.id == "S2.6")
    assert examine(claim, models={"gpt2": gpt2, "minilm": encoder}).on == "minilm"
    alone = examine(claim, models={"gpt2": gpt2})
    assert alone.verdict == "skipped"
    assert alone.reason == "gpt2 was given, but it lacks W_E"


def test_a_partial_checkpoint_is_said_where_only_a_baseline_is_left(gpt2: Checkpoint) -> None:
    (claim,) = (claim for claim in all_claims() if claim.id == "8.3")
    found = examine(claim, models={"stories": gpt2})
    assert found.verdict == "baseline"
    assert "stories was given, but this checkpoint has no" in found.on
