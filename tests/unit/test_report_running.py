"""A report runs the model where it can, and says why where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

import headspan
from headspan.errors import UnsupportedModel
from headspan.explorer.reports import write_report
from headspan.lenses import model
from tests.browser.page_elements import asks_nothing
from tests.unit.test_report import only


def test_the_report_runs_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "attention", "detect")
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "induction heads, which attend to the token after an earlier copy of the current one" in html
    assert "Detector scores" in html
    assert asks_nothing(html)


def test_the_report_does_not_run_what_is_large_or_not_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "detect")
    monkeypatch.setattr(model, "MOST_PARAMETERS", 1000)
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "Not computed: models of more than 1,000 parameters are run only by the lens" in html


def test_a_model_that_transformers_does_not_load_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "detect")

    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedModel("transformers cannot run it")

    monkeypatch.setattr("headspan.runtime.model.load_module", refuse)
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "Not computed: transformers cannot run it." in html
