"""Documents reproduced: every exhibit is complete, verdicts follow their rules, an interrupted run goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr
from typer.testing import CliRunner

from headspan.cli.main import app
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.explorer import reproductions
from headspan.explorer.reproductions import KeptExhibits, command_of, reproduction_page, shown_exhibits
from headspan.ledger.claim import DOCUMENTS, all_claims
from headspan.ledger.reproduction import AtHand, Exhibit, Exhibits, Shown, exhibits_of
from headspan.ledger.reproduction.document_000 import neighbor_shares
from headspan.ledger.reproduction.exhibit import UNTESTED, language


def exhibit(show, name: str = "Figure 9") -> Exhibit:
    return Exhibit(name, "A sentence.", "A rule.", "headspan inspect {model}", ("S0.4",), show)


@pytest.fixture(scope="module")
def at_hand() -> AtHand:
    return AtHand()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_exhibit_says_what_it_shows_by_which_rule_and_how_to_repeat_it(document: str) -> None:
    listed, known = exhibits_of(document).listed, {claim.id for claim in all_claims()}
    assert len(listed) >= 5
    assert len({one.name for one in listed}) == len(listed)
    for one in listed:
        assert one.sentence.endswith((".", "?")), one.name
        assert one.rule.endswith((".", ")")), one.name
        assert one.command.startswith("headspan "), one.name
        assert set(one.claims) <= known, one.name


def test_an_unknown_document_or_exhibit_is_refused() -> None:
    with pytest.raises(ArgumentError, match="there is no document '009'; documents are 000, 001"):
        exhibits_of("009")
    with pytest.raises(ArgumentError, match="document 000 has no exhibit 'Figure 7'; it has Figure 1, Figure 2"):
        exhibits_of("000").chosen(["Figure 7"])
    assert [one.name for one in exhibits_of("000").chosen(["figure 2"])] == ["Figure 2"]


def test_an_interrupted_run_goes_on_where_it_stopped(
    tmp_path: Path, at_hand: AtHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"first": 0, "second": 0}

    def first(models: AtHand) -> Shown:
        counts["first"] += 1
        return Shown(
            "holds", "1 (expected 0).", "demo", {"A curve": go.Figure(go.Scatter(y=[1.0, 2.0]))}, [("a",), ("b",)]
        )

    def second(models: AtHand) -> Shown:
        counts["second"] += 1
        if counts["second"] == 1:
            raise KeyboardInterrupt
        raise UnsupportedModel("it lacks W_E")

    made = Exhibits("000", [exhibit(first, "One"), exhibit(second, "Two")])
    monkeypatch.setattr(reproductions, "exhibits_of", lambda document: made)
    with pytest.raises(KeyboardInterrupt):
        shown_exhibits("000", at_hand, tmp_path)
    found = shown_exhibits("000", at_hand, tmp_path)
    assert counts == {"first": 1, "second": 2}
    again = found[0][1]
    assert (again.outcome, again.number, again.model) == ("holds", "1 (expected 0).", "demo")
    assert list(again.figures["A curve"].data[0].y) == [1.0, 2.0]
    assert found[1][1] == Shown(UNTESTED, "it lacks W_E.")
    shown_exhibits("000", at_hand, tmp_path, fresh=True)
    assert counts == {"first": 2, "second": 3}


def test_a_damaged_record_and_one_of_other_models_are_computed_again(tmp_path: Path, at_hand: AtHand) -> None:
    kept, one = KeptExhibits.of(tmp_path, "000", at_hand), exhibit(lambda models: Shown("holds", "."))
    kept.keep(one, Shown("holds", "A number."))
    assert kept.read(one) == Shown("holds", "A number.", table=[])
    assert KeptExhibits.of(tmp_path, "000", AtHand(["synthetic:tiny"])).read(one) is None
    (path,) = kept.folder.iterdir()
    path.write_bytes(path.read_bytes().replace(b"A number", b"B number"))
    assert kept.read(one) is None


def test_the_page_has_verdict_number_rule_command_and_claim() -> None:
    one = exhibit(lambda models: Shown("holds", "."))
    shown = Shown("holds in part", "2 of 3 <b>.", "demo", {"A curve": go.Figure(go.Scatter(y=[1.0]))})
    page = reproduction_page("000", [(one, shown)])
    for text in (
        "Holds in part.",
        "2 of 3 &lt;b&gt;.",
        "Rule: A rule.",
        "headspan inspect demo",
        "Claim S0.4",
        "A curve",
    ):
        assert text in page
    assert command_of(one, Shown(UNTESTED, ".")) == "headspan inspect MODEL"


def test_the_first_model_that_suits_is_taken_and_reasons_are_told(at_hand: AtHand) -> None:
    assert at_hand.first("similarity").source == at_hand.models[-1].source
    with pytest.raises(UnsupportedModel, match="which is no English"):
        at_hand.first("attention", language)


def test_neighbors_are_pure_in_clusters_and_mixed_in_one_cloud() -> None:
    rng = np.random.default_rng(0)
    names = ["R_Q", "R_K", "N_Q", "N_K"]
    points = rng.standard_normal((4, 200, 2))
    points[0] += 50
    found = neighbor_shares(xr.DataArray(points, dims=("subspace", "sample", "axis"), coords={"subspace": names}))
    assert found[0] == 1.0
    assert 0.35 < found[1] < 0.65


def test_the_command_draws_one_figure_and_refuses_what_is_not_there(tmp_path: Path) -> None:
    run = CliRunner().invoke
    done = run(app, ["reproduce", "000", "--only", "Figure 4", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "holds" in done.output
    page = (tmp_path / "out" / "document-000.html").read_text()
    assert "Distances within layers" in page
    for arguments, said in (
        (["reproduce", "1706.03762"], "not '1706.03762'"),
        (["reproduce", "2601.10266"], "takes one --model"),
        (["reproduce", "000", "--only", "Figure 7"], "has no exhibit"),
    ):
        wrong = run(app, arguments)
        assert wrong.exit_code != 0
        assert said in str(wrong.exception)


def test_positions_and_tokens_are_shown_on_a_model_with_both_tables(minilm: Path) -> None:
    at_hand = AtHand([minilm], demo=False)
    found = {one.name: one.show(at_hand) for one in exhibits_of("002").listed if one.name != "Question: why sparse?"}
    assert {one.outcome for one in found.values()} <= {"holds", "holds in part", "does not hold"}
    assert found["Capture of token directions"].outcome == "holds"
    assert "without mean rows 10 % (expected 8 %)" in found["Capture of token directions"].number


def test_a_model_that_only_reads_is_asked_for_its_maps_and_not_for_clues(minilm: Path) -> None:
    at_hand = AtHand([minilm], demo=False)
    found = exhibits_of("003").chosen(["Figures 8.4, 8.5 and A.1 to A.8", "Tables 8.1 and A.1 to A.3"])
    assert "random weights 1.00, 1.00, 1.00" in found[0].show(at_hand).number
    with pytest.raises(UnsupportedModel, match="it has no language-model head"):
        found[1].show(at_hand)
