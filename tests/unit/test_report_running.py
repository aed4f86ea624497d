"""A report runs the model where it can, and says why where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from headspan.explorer.report import write_report

import headspan
from headspan.errors import UnsupportedModel
from headspan.explorer import report, subjects
from headspan.lenses import LENSES
from tests.browser.page_elements import asks_nothing


def test_the_report_runs_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LENSES", {name: LENSES[name] for name in ("attention", "detect")})
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "Induction heads, which attend to the token after an earlier copy of the current one" in html
    assert "Detector scores" in html
    assert asks_nothing(html)


def test_the_report_does_not_run_what_is_large_or_not_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LENSES", {"detect": LENSES["detect"]})
    monkeypatch.setattr(subjects, "MOST_PARAMETERS", 1000)
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "Does not apply: models of more than 1,000 parameters are run by the lens" in html


def test_a_model_that_transformers_does_not_load_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "LENSES", {"detect": LENSES["detect"]})

    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedModel("transformers cannot run it")

    monkeypatch.setattr("headspan.runtime.model.loaded_module", refuse)
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "Does not apply: transformers cannot run it." in html
