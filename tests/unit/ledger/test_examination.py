"""The machinery of the ledger: verdicts, broken checks, and the choice of claims."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from headspan.errors import ArgumentError, BrokenCheck
from headspan.ledger import Claim, Evidence, Trial, all_claims, examine, select_claims
from headspan.ledger.examination import evidence_text, markdown, number_text, summary
from headspan.ledger.trial import Draws, at_least, at_most, equals, mean_is, near, same, variance_is

RIGHT, OFF = equals("right", 1.0, 1.0, 0.0), equals("off", 1.0, 2.0, 0.5)


def row(status: str, evidence: Evidence, needs: str = "") -> Claim:
    facts = {"kind": "formula", "statement": "s", "reference": "r", "correction": "c", "status": status}
    return Claim(id="x", document="003", check=lambda *_: evidence, needs=needs, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "evidence", "verdict"),
    [
        ("holds", Evidence((RIGHT,)), "pass"),
        ("holds", Evidence((RIGHT, OFF)), "fail"),
        ("wrong", Evidence((RIGHT,), printed=(OFF,)), "pass"),
        ("wrong", Evidence((RIGHT,), printed=(RIGHT,)), "fail"),
        ("wrong", Evidence((OFF,), printed=(OFF,)), "fail"),
        ("not reproduced", Evidence((RIGHT,), printed=(RIGHT, OFF)), "pass"),
    ],
)
def test_a_wrong_claim_passes_only_with_both_halves_shown(status: str, evidence: Evidence, verdict: str) -> None:
    assert examine(row(status, evidence)).verdict == verdict


def test_a_wrong_claim_that_never_tries_the_printed_form_has_failed() -> None:
    found = examine(row("wrong", Evidence((RIGHT,))))
    assert found.verdict == "fail"
    assert "does not try the printed form" in found.reason


def test_a_claim_that_holds_takes_no_trials_of_a_printed_form() -> None:
    assert "needs no trials of its own" in examine(row("holds", Evidence((RIGHT,), printed=(OFF,)))).reason


def test_a_check_that_raises_has_failed_and_says_what_broke() -> None:
    def broken(_: Draws) -> Evidence:
        raise ZeroDivisionError("division by zero")

    found = examine(dataclasses.replace(row("holds", Evidence((RIGHT,))), check=broken))
    assert (found.verdict, found.reason) == ("fail", "ZeroDivisionError: division by zero")


def test_nan_can_neither_hold_nor_count_as_a_printed_form_that_fails() -> None:
    def undefined(_: Draws) -> Evidence:
        return Evidence((RIGHT,), printed=(equals("printed", math.nan, 1.0, 0.1),))

    found = examine(dataclasses.replace(row("wrong", Evidence((RIGHT,), (OFF,))), check=undefined))
    assert found.verdict == "fail"
    assert "not a number" in found.reason


def test_a_check_that_tries_nothing_is_refused() -> None:
    with pytest.raises(BrokenCheck, match="proves nothing"):
        Evidence(())


@pytest.mark.parametrize("slack", [math.inf, math.nan, -1.0])
def test_a_trial_that_allows_everything_is_refused(slack: float) -> None:
    with pytest.raises(BrokenCheck, match="allows a difference"):
        Trial("x", 1.0, 1.0, slack)


def test_a_claim_about_a_model_is_skipped_until_the_model_is_at_hand() -> None:
    claim = row("observational", Evidence((RIGHT,)), needs="gpt2")
    assert examine(claim).verdict == "skipped"
    assert "--model gpt2=PATH" in examine(claim).reason
    assert examine(claim, models={"gpt2": None}).verdict == "pass"  # type: ignore[dict-item]


HELD, MISSED = Evidence((RIGHT,)), Evidence((RIGHT, OFF))
BOTH = Evidence((RIGHT,), printed=(OFF,))


@pytest.mark.parametrize(
    ("status", "evidence", "given", "verdict"),
    [
        ("observational", HELD, "gpt2", "pass"),
        ("observational", MISSED, "gpt2", "fail"),
        ("observational", HELD, "minilm", "pass"),
        ("observational", MISSED, "minilm", "differs"),
        ("holds", MISSED, "minilm", "fail"),
        ("not reproduced", BOTH, "minilm", "pass"),
        ("not reproduced", HELD, "gpt2", "pass"),
        ("not reproduced", MISSED, "gpt2", "fail"),
    ],
)
def test_a_model_that_stands_in_cannot_refute_an_observation(
    status: str, evidence: Evidence, given: str, verdict: str
) -> None:
    found = examine(row(status, evidence, needs="gpt2 or minilm"), models={given: None})  # type: ignore[dict-item]
    assert (found.verdict, found.on) == (verdict, given)


@pytest.mark.parametrize("at_best", ["pass", "kept numbers", "baseline"])
def test_without_its_model_a_claim_says_what_was_tried(at_best: str) -> None:
    facts = {"needs": "gpt2", "otherwise": "something else", "at_best": at_best}
    claim = dataclasses.replace(row("observational", HELD), **facts)  # type: ignore[arg-type]
    found = examine(claim)
    assert (found.verdict, found.on) == (at_best, "something else")
    assert found.record()["tried_on"] == "something else"
    assert examine(claim, models={"gpt2": None}).verdict == "pass"  # type: ignore[dict-item]
    missed = dataclasses.replace(claim, check=lambda *_: MISSED)
    assert examine(missed).verdict == "fail"
    counted = summary([found, examine(missed)])
    assert " 1 failed" in counted
    assert f"1 {at_best}" in counted or at_best == "pass"


def test_of_several_models_given_the_one_a_claim_is_about_is_used() -> None:
    claim = row("observational", HELD, needs="gpt2 or minilm")
    both = {"minilm": None, "gpt2": None}
    assert examine(claim, models=both).on == "gpt2"  # type: ignore[arg-type]
    assert "--model gpt2=PATH or --model minilm=PATH" in examine(claim).reason


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"status": "true"}, "unknown status"),
        ({"document": "009"}, "document is one of"),
        ({"needs": "bert"}, "needs 'bert'; models are gpt2"),
        ({"at_best": "baseline"}, "at_best is 'baseline', of a claim that says what it rests on"),
        ({"needs": "gpt2", "otherwise": "o", "at_best": "fail"}, "at_best is 'fail'"),
        ({"correction": "", "status": "wrong"}, "does not say what is right"),
    ],
)
def test_a_row_that_is_not_whole_is_refused(facts: dict[str, object], message: str) -> None:
    with pytest.raises(BrokenCheck, match=message):
        dataclasses.replace(row("holds", Evidence((RIGHT,))), **facts)  # type: ignore[arg-type]


def test_trials_hold_at_the_edge_and_not_beyond() -> None:
    assert near("x", 1.01, 1.0, 0.0101).holds
    assert not near("x", 1.02, 1.0, 0.01).holds
    assert at_most("x", 2.0, 2.0).holds
    assert not at_most("x", 2.0001, 2.0).holds
    assert at_least("x", 2.0, 2.0).holds
    assert not at_least("x", 1.9, 2.0).holds
    assert equals("x", math.inf, math.inf, 0.0).holds
    assert not same("x", torch.tensor([0.0, 1e-3]), 0.0, 1e-4).holds


def test_means_and_variances_are_held_to_their_standard_errors() -> None:
    draws = Draws(0, "x").normal(10_000, sd=2.0)
    assert mean_is("mean", draws, 0.0).slack == pytest.approx(4 * 2 / 100, rel=0.05)
    assert mean_is("mean", draws, 0.0).holds
    assert not mean_is("mean", draws, 0.2).holds
    assert variance_is("variance", draws, 4.0).holds
    assert not variance_is("variance", draws, 4.4).holds
    assert variance_is("variance", draws, 4.0).measured == pytest.approx(float(draws.var()))
    with pytest.raises(BrokenCheck, match="at least 2 draws"):
        mean_is("x", draws.reshape(100, 100), 0.0)


def test_every_claim_has_random_numbers_of_its_own() -> None:
    first, again, other, seeded = Draws(0, "a"), Draws(0, "a"), Draws(0, "b"), Draws(1, "a")
    x = first.normal(5)
    assert torch.equal(x, again.normal(5))
    assert not torch.equal(x, other.normal(5))
    assert not torch.equal(x, seeded.normal(5))


def test_draws_have_the_laws_they_are_named_for() -> None:
    draws = Draws(0, "laws")
    assert torch.allclose(draws.sphere(7, 5, radius=3.0).norm(dim=-1), torch.full((7,), 3.0, dtype=torch.float64))
    x, y = draws.pairs_at(0.6, 9, 4)
    assert torch.allclose((x * y).sum(-1), torch.full((9,), 0.6, dtype=torch.float64))
    assert torch.allclose(y.norm(dim=-1), torch.ones(9, dtype=torch.float64))
    rotations = draws.haar(4, 2000)
    assert torch.allclose(rotations @ rotations.mT, torch.eye(4, dtype=torch.float64), atol=1e-12)
    assert (rotations[:, 0, 0].mean()).abs() < 4 * 0.5 / 2000**0.5
    assert draws.haar(3).shape == (3, 3)
    sigma = draws.covariance(3)
    assert torch.linalg.eigvalsh(sigma)[0] >= 0.3
    sample = draws.gaussian(torch.ones(3, dtype=torch.float64), sigma, 40_000)
    assert torch.allclose(torch.cov(sample.T), sigma, atol=0.05)


def test_ids_are_chosen_whole_or_by_their_beginning() -> None:
    claims = all_claims()
    assert [claim.id for claim in select_claims(claims, name="2.2c")] == ["2.2c"]
    assert {claim.id for claim in select_claims(claims, name="2.")} >= {"2.1g", "2.2c"}
    assert all(claim.status == "wrong" for claim in select_claims(claims, status="wrong"))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"document": "7"}, "there is no document"),
        ({"status": "true"}, "there is no status"),
        ({"name": "99"}, "no claim is of that"),
    ],
)
def test_a_choice_that_matches_nothing_says_so(choice: dict[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        select_claims(all_claims(), **choice)


def test_listing_shows_numbers_and_hides_rounding_error() -> None:
    assert number_text(3e-16) == "<1e-9"
    assert number_text(0.0) == "0"
    assert number_text(1 / 3) == "0.3333"
    evidence = Evidence((RIGHT,), (OFF,), {"seen": 0.25})
    assert evidence_text(evidence) == "as printed: off 1 ≠ 2 ± 0.5; right 1 = 1; seen 0.25"
    found = [examine(row("wrong", evidence))]
    assert summary(found) == "1 claims: 1 wrong. Checks: 1 passed, 0 failed, 0 skipped."
    assert "| x wrong | s **Right:** c | pass: as printed: off 1 ≠ 2" in markdown(found)
