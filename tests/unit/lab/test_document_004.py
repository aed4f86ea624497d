"""Document 004 shown on training runs: every exhibit has its verdict on a trained one, none holds on an untrained."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from headspan.lab.recipe import preset
from headspan.lab.session import Run, run_once
from headspan.ledger.reproduction import AtHand, Shown, exhibits_of, lab_run
from headspan.ledger.reproduction.exhibit import UNTESTED


def verdicts(model: Path) -> dict[str, Shown]:
    from headspan.explorer.reproductions import _shown

    at_hand = AtHand([model], demo=False)
    return {one.name: _shown(one, at_hand) for one in exhibits_of("004").chosen([])}


def test_every_exhibit_is_shown_on_a_trained_run_with_figure_and_kept_runs_beside_it(trained: Run) -> None:
    found = verdicts(trained.folder.model_folder)
    assert UNTESTED not in {one.outcome for one in found.values()}
    assert all(one.figures for one in found.values())
    for name in ("Two functions", "Reason 1: layer 0 without tokens", "Question: saddle or minimum?"):
        assert found[name].outcome == "holds", found[name].number
    # The preset is too small for one very large value, and its bridge does without the top direction.
    assert found["Plot: singular values"].outcome == found["Plot: the bridge"].outcome == "holds in part"
    rows = [row[0] for row in found["Two functions"].table]
    assert rows[:3] == ["run", "this run", "default, seed 0"]


def test_nothing_holds_on_a_run_that_has_not_learned(tmp_path: Path) -> None:
    short = preset("smoke").with_settings(steps=20, cooldown=0, track_every=10, save_every=10)
    run = run_once(short, tmp_path / "run")
    found = verdicts(run.folder.model_folder)
    assert {one.outcome for one in found.values()} <= {"does not hold", UNTESTED}
    assert found["Sharp transition"].outcome == "does not hold"
    assert "no transition" in found["Question: saddle or minimum?"].number


def test_a_damaged_run_is_named_and_no_other_trained_in_its_place(tmp_path: Path, trained: Run) -> None:
    copytree(trained.folder.path, tmp_path / "run")
    (tmp_path / "run" / "track.nc").write_bytes(b"no record")
    found = verdicts(tmp_path / "run" / "model")
    assert {one.outcome for one in found.values()} == {UNTESTED}
    assert "track.nc' cannot be read" in found["Sharp transition"].number


def test_without_a_run_one_is_trained_for_the_page(monkeypatch: pytest.MonkeyPatch, trained: Run) -> None:
    asked = []

    def instead(recipe: object, folder: Path) -> None:
        asked.append(recipe)
        folder.symlink_to(trained.folder.path)

    monkeypatch.setattr(lab_run, "run_once", instead)
    shown = exhibits_of("004").chosen(["Sharp transition"])[0].show(AtHand())
    assert asked == [preset("smoke")]
    assert shown.model == lab_run.OWN
    assert "before training 0.0" in shown.number
