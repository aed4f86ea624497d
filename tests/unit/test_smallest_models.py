"""Models of one layer, of one head, and results without findings: reports and comparisons of what is barely there."""

from __future__ import annotations

from pathlib import Path

import pytest

import headspan
from headspan.explorer.compare_page import compare_page
from headspan.explorer.findings_section import NOTHING
from headspan.explorer.reports import write_report
from tests.families.tiny_models import COMMON, Case
from tests.unit.test_drift import noisy

QUICK = ("ranks", "affinity", "similarity", "spectra")


def small(change=None, **settings) -> headspan.Model:
    import torch

    shape = {"n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 8, **settings}
    model = Case("gpt2", "gpt2", {**COMMON, **shape}).model()
    if change is not None:
        with torch.no_grad():
            change([block.attn for block in model.h])
    return headspan.open(model)


@pytest.fixture
def _few_lenses(monkeypatch: pytest.MonkeyPatch) -> None:
    real = headspan.Model.skip_reasons

    def few(model: headspan.Model, stack: str | None = None) -> dict[str, str | None]:
        return {name: reason if name in QUICK else "left out here" for name, reason in real(model, stack).items()}

    monkeypatch.setattr(headspan.Model, "skip_reasons", few)


SHAPES = [{"n_layer": 1}, {"n_layer": 2, "n_head": 1}, {"n_layer": 1, "n_head": 1}]


@pytest.mark.usefixtures("_few_lenses")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_report_of_a_smallest_model_is_written(shape: dict[str, int], tmp_path: Path) -> None:
    html = write_report(small(**shape), tmp_path / "r.html").read_text()
    assert '<section class="opening" id="findings"' in html
    assert ("needs at least 2 layers; this model has 1" in html) == (shape["n_layer"] == 1)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_smallest_models_are_compared(shape: dict[str, int]) -> None:
    result = headspan.compare(small(**shape), small(noisy, **shape), draws=3)
    html = compare_page(result)
    assert "What moved" in html
    assert "Left out: " in html


@pytest.mark.usefixtures("_few_lenses")
def test_a_report_without_findings_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headspan.Result, "findings", [])
    html = write_report(small(), tmp_path / "r.html").read_text()
    assert NOTHING in html


@pytest.mark.slow
def test_a_comparison_without_findings_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headspan.Result, "findings", [])
    result = headspan.compare(small(), small(noisy), draws=3)
    assert NOTHING in compare_page(result)
