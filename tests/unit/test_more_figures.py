"""Cosines beside attention, the ledger as a page: each against its numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.explorer.claims_page import claims_page
from headspan.ledger import Examination, all_claims
from headspan.ledger.figures import claims_by_document, figures
from tests.unit.running_models import TEXT, running


@pytest.mark.parametrize("level", ["token", "word"])
def test_cosines_beside_attention_are_those_of_the_embedded_tokens(level: str) -> None:
    from headspan.runtime import encoded, forward

    model = running()
    prompt = encoded(model, TEXT)
    maps = headspan.attention(model, TEXT, level=level, permutations=0)
    cosine = maps["embedding_cosine"].values
    np.testing.assert_allclose(np.diag(cosine), 1, atol=1e-6)
    np.testing.assert_allclose(cosine, cosine.T)
    assert np.abs(cosine).max() <= 1 + 1e-9
    if level == "token":
        states = forward(model, prompt.tokens).states[0, 0].double().numpy()
        expected = states[2] @ states[5] / np.linalg.norm(states[2]) / np.linalg.norm(states[5])
        assert cosine[2, 5] == pytest.approx(expected)
    drawn = maps.figures["Attention beside cosines"]
    assert np.isnan(drawn.data[1].z[0][0])
    assert drawn.data[1].z[0][1] == pytest.approx(cosine[0, 1])


def test_the_bars_count_every_claim_once() -> None:
    examined = [Examination(claim, "pass") for claim in all_claims()]
    drawn = claims_by_document(examined)
    assert sum(sum(bars.x) for bars in drawn.data) == len(all_claims())
    assert {bars.name for bars in drawn.data} == {claim.status for claim in all_claims()}


def test_the_page_of_the_ledger_shows_every_claim_and_the_curves() -> None:
    examined = [Examination(claim, "skipped", reason="not now") for claim in all_claims()]
    html = claims_page(examined)
    assert html.count("skipped: not now") == len(all_claims())
    for name in figures(examined):
        assert f"<h4>{name}</h4>" in html


def test_the_command_writes_the_page_and_does_not_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "claims.html"
    line = ["claims", "--id", "6.33", "--html", str(path)]
    assert CliRunner().invoke(app, line).exit_code == 0
    assert "6.33" in path.read_text()
    assert "--force" in str(CliRunner().invoke(app, line).exception)
