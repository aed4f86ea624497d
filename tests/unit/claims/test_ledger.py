"""Every row of the ledger is checked, one test each."""

from __future__ import annotations

from collections import Counter

import pytest

from headspan.ledger import Claim, examined, ledger
from headspan.ledger.listing import evidence_text

CHECKED = [claim for claim in ledger() if claim.check is not None and (claim.otherwise or not claim.needs)]


@pytest.mark.parametrize("claim", CHECKED, ids=lambda claim: claim.id)
def test_the_ledger_says_what_the_computation_says(claim: Claim) -> None:
    found = examined(claim)
    assert found.verdict == "pass", found.reason or (found.evidence and evidence_text(found.evidence))


def test_every_id_stands_once() -> None:
    assert [name for name, times in Counter(claim.id for claim in ledger()).items() if times > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("claim", CHECKED, ids=lambda claim: claim.id)
def test_no_verdict_hangs_on_the_seed(claim: Claim, seed: int) -> None:
    found = examined(claim, seed)
    assert found.verdict == "pass", found.reason or (found.evidence and evidence_text(found.evidence))
