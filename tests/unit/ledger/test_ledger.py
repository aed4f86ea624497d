"""Every row of the ledger is checked, one test each."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from headspan.errors import BrokenCheck
from headspan.ledger import Claim, all_claims, check, examine
from headspan.ledger.claim import CHECKS, DEMO, FOLDER, MODULES, TEXTS, claims_of
from headspan.ledger.examination import evidence_text

CHECKED = [claim for claim in all_claims() if not claim.needs or claim.otherwise or DEMO in claim.models]
"""What can be tried without a model of the user's."""


@pytest.mark.parametrize("claim", CHECKED, ids=lambda claim: claim.id)
def test_the_ledger_says_what_the_computation_says(claim: Claim) -> None:
    found = examine(claim)
    assert found.verdict == claim.at_best, found.reason or (found.evidence and evidence_text(found.evidence))


def test_every_claim_has_a_check_and_every_check_a_claim() -> None:
    texts = [row for name in TEXTS for row in yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))]
    assert len(texts) == 193
    assert {row["id"] for row in texts} == set(CHECKS)
    assert {path.stem for path in FOLDER.iterdir()} == set(TEXTS)
    modules = {path.stem for path in FOLDER.parent.glob("*.py") if path.stem.startswith(("chapter_", "document_"))}
    assert modules == set(MODULES)


def test_a_check_without_a_claim_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "99.9", CHECKS["2.1a"])
    with pytest.raises(BrokenCheck, match=r"checks of claims that no file of texts holds: 99\.9"):
        all_claims.__wrapped__()


def test_a_claim_without_a_check_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CHECKS, "2.1a")
    with pytest.raises(BrokenCheck, match=r"claim 2\.1a has no check"):
        all_claims.__wrapped__()


def test_a_claim_has_one_check() -> None:
    with pytest.raises(BrokenCheck, match=r"claim 2\.1a has two checks: likelihood and likelihood"):
        check("2.1a")(CHECKS["2.1a"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tolerence: small", "tolerence: 'small' is no text of one of the fields"),
        ("tolerance: 0.01", "tolerance: 0.01 is no text of one of the fields"),
        ("id: 5.1", "id: 5.1 is no text of one of the fields"),
        ("id: 5.1a", "claim 5.1a lacks kind, reference, statement, status"),
    ],
)
def test_a_row_of_texts_that_is_not_whole_is_refused(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"- {line}\n")
    with pytest.raises(BrokenCheck, match=re.escape(message)):
        claims_of(file, "003")


def test_every_id_stands_once() -> None:
    assert [name for name, times in Counter(claim.id for claim in all_claims()).items() if times > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("claim", CHECKED, ids=lambda claim: claim.id)
def test_no_verdict_hangs_on_the_seed(claim: Claim, seed: int) -> None:
    found = examine(claim, seed)
    assert found.verdict == claim.at_best, found.reason or (found.evidence and evidence_text(found.evidence))
