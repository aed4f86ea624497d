"""The page of what was found names every question, and its states follow from verdicts."""

from __future__ import annotations

from docs.found.questions import ANSWERED, EVIDENCE, LEAD, OPEN, QUESTIONS, state
from docs.make_found import PAGE
from headspan.ledger.reproduction import Shown, exhibits_of
from headspan.ledger.reproduction.exhibit import UNTESTED


def test_every_question_stands_on_the_page_with_an_exhibit_or_a_note() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for one in QUESTIONS:
        assert f"### {one.text}\n" in text
        assert bool(one.exhibit) != bool(one.note)
        if one.exhibit:
            assert exhibits_of(one.shown_in).chosen([one.exhibit])


def test_one_model_is_a_lead_and_three_that_agree_are_an_answer() -> None:
    holds, fails, untested = (Shown(outcome, ".") for outcome in ("holds", "does not hold", UNTESTED))
    assert state([untested]) == OPEN
    assert state([holds, untested]) == LEAD
    assert state([holds, holds]) == EVIDENCE
    assert state([holds, holds, fails]) == EVIDENCE
    assert state([holds, holds, holds, untested]) == ANSWERED
