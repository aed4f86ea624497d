"""The page of claims says what the ledger says."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headspan.cli.claims import open_models
from headspan.cli.main import app
from headspan.errors import ArgumentError
from headspan.ledger import Claim, Examination, all_claims
from headspan.ledger.examination import COLUMNS, INTRODUCTION, markdown

PAGE = Path(__file__).parents[3] / "docs" / "claims.md"
AGAIN = (
    "make it again: headspan claims --markdown --model gpt2=... --model minilm=... --model stories=... > docs/claims.md"
)
GIVEN = {"gpt2", "minilm", "stories", "demo"}
"""The models that the page was made with."""
DIFFERS = {"8.2b"}
"""What does not come out on stories260K, which stands in for Mistral-7B."""


def rows(page: str) -> list[list[str]]:
    """The cells of every row of the page's tables."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if tuple(row) != COLUMNS]


def test_the_page_is_that_of_this_ledger() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.startswith(INTRODUCTION), AGAIN
    expected = rows(markdown([Examination(claim, "skipped") for claim in all_claims()]))
    assert [row[:2] for row in rows(page)] == [row[:2] for row in expected], AGAIN


def expected_verdict(claim: Claim) -> str:
    if claim.id in DIFFERS:
        return "differs"
    if not claim.needs or GIVEN & set(claim.models):
        return "pass"
    return claim.at_best if claim.otherwise else "skipped"


def test_every_verdict_on_the_page_says_what_was_tried() -> None:
    claims = {claim.id: claim for claim in all_claims()}
    for name, _, check in rows(PAGE.read_text(encoding="utf-8")):
        claim = claims[name.split()[0]]
        verdict, _, evidence = check.partition(": ")
        assert verdict == expected_verdict(claim), f"{name}: {AGAIN}"
        assert evidence
        if verdict in ("pass", "differs") and claim.needs:
            assert evidence[1 : evidence.index("]")] in claim.models


def test_the_page_counts_its_claims() -> None:
    page = PAGE.read_text(encoding="utf-8")
    verdicts = Counter(check.partition(":")[0] for _, _, check in rows(page))
    (line,) = re.findall(r"^\d+ claims: .*$", page, re.MULTILINE)
    for status, count in Counter(claim.status for claim in all_claims()).items():
        assert f" {count} {status}" in line, AGAIN
    assert line.startswith(f"{len(all_claims())} claims: "), AGAIN
    words = {"pass": "passed", "differs": "differ", "kept numbers": "kept numbers", "skipped": "skipped"}
    assert set(verdicts) == set(words), AGAIN
    for verdict, count in verdicts.items():
        assert f" {count} {words[verdict]}" in line, AGAIN
    assert " 0 failed" in line, AGAIN


def test_all_published_claims_are_there_with_their_status() -> None:
    published = [claim for claim in all_claims() if claim.document in ("000", "003", "004") and claim.kind != "added"]
    assert len(published) == 158
    assert Counter(claim.status for claim in published) == {
        "wrong": 72,
        "holds": 52,
        "approximate": 17,
        "asymptotic": 7,
        "observational": 9,
        "not reproduced": 1,
    }
    others = Counter(claim.document for claim in all_claims())
    assert others["001"] >= 10
    assert others["002"] >= 10


def test_the_page_names_the_models_it_was_made_with() -> None:
    assert re.search(r"Models used: gpt2, minilm, stories\.$", PAGE.read_text(encoding="utf-8"), re.MULTILINE), AGAIN


def test_the_command_says_what_was_tried_without_a_model() -> None:
    found = CliRunner().invoke(app, ["claims", "--document", "000"])
    assert "Without a model" not in found.stdout, "few claims are shown in full"
    assert "tried on" in found.stdout
    every = CliRunner().invoke(app, ["claims", "--status", "observational"])
    assert "kept numbers" in every.stdout
    assert "Without a model, on numbers kept of our own runs" in every.stdout
    assert "5 kept numbers, 3 baseline only" in every.stdout
    assert every.exit_code == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gpt2", "--model takes NAME=PATH"),
        ("bert=x", "claims are about gpt2, minilm, mistral, stories, lab"),
        ("gpt2=demo", "gpt2 is a gpt2, but 'demo' is a llama"),
    ],
)
def test_a_model_that_no_claim_is_about_is_refused(given: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        open_models([given])


def test_a_document_is_chosen_by_its_name_and_not_by_a_seed() -> None:
    found = CliRunner().invoke(app, ["claims", "--document", "004", "--id", "S4.2", "--json"])
    assert found.exit_code == 0
    assert [row["id"] for row in json.loads(found.stdout)["claims"]] == ["S4.2"]
    assert CliRunner().invoke(app, ["claims", "--seed", "004"]).exit_code == 2
