"""Claims about a model hold on the model, where it is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from headspan.checkpoint import Checkpoint, open_checkpoint
from headspan.ledger import Claim, all_claims, examine
from headspan.ledger.examination import evidence_text
from headspan.ledger.models import positions_of

ABOUT = {name: [claim for claim in all_claims() if claim.needs == name] for name in ("gpt2", "minilm")}


@pytest.fixture(scope="module")
def gpt2(gpt2_attention: Path) -> Checkpoint:
    return open_checkpoint(str(gpt2_attention))


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> Checkpoint:
    return open_checkpoint(str(minilm))


def passes(claim: Claim, model: Checkpoint) -> None:
    found = examine(claim, models={claim.needs: model})
    assert found.verdict == "pass", found.reason or (found.evidence and evidence_text(found.evidence))


def test_every_model_named_is_one_that_is_tried() -> None:
    elsewhere = {"lab"}  # tried on a run that is trained for the tests of the lab
    assert {claim.needs for claim in all_claims() if claim.needs} <= set(ABOUT) | elsewhere


@pytest.mark.slow
@pytest.mark.parametrize("claim", ABOUT["gpt2"], ids=lambda claim: claim.id)
def test_gpt2_is_as_the_ledger_says(claim: Claim, gpt2: Checkpoint) -> None:
    passes(claim, gpt2)


@pytest.mark.parametrize("claim", ABOUT["minilm"], ids=lambda claim: claim.id)
def test_minilm_is_as_the_ledger_says(claim: Claim, encoder: Checkpoint) -> None:
    passes(claim, encoder)


def test_a_model_is_measured_once(encoder: Checkpoint) -> None:
    assert positions_of(encoder) is positions_of(encoder)


@pytest.mark.parametrize("claim", [*ABOUT["gpt2"], *ABOUT["minilm"]], ids=lambda claim: claim.id)
def test_without_its_model_a_claim_is_skipped(claim: Claim) -> None:
    found = examine(claim)
    assert found.verdict == "skipped"
    assert f"--model {claim.needs}=PATH" in found.reason
