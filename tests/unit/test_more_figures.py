"""Precision-recall curves of classes, cosines beside attention, the ledger as a page: each against its numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.explorer.claims_page import claims_page
from headspan.ledger import Examination, ledger
from headspan.ledger.figures import claims_by_document, figures
from headspan.lenses import affinity
from headspan.lenses.affinity.class_curves import ANY, class_curves
from headspan.lenses.affinity.figures import figures as affinity_figures
from tests.unit.running_models import TEXT, running
from tests.unit.test_drift import gpt2


def test_curves_of_classes_are_those_of_their_heads_largest_affinity() -> None:
    result = affinity.compute(gpt2(), metrics=("pk",))
    classes = {"L0H0": "a", "L1H2": "a", "L1H0": "b", "L9H9": "nowhere"}
    by_target = {curve.target: curve for curve in class_curves(result, classes)}
    assert set(by_target) == {"a", "b", ANY}
    labels = [f"L{layer}H{head}" for layer in range(2) for head in range(3)]
    largest = []
    for label in labels:
        layer, head = int(label[1]), int(label[3])
        sides = {"src_layer": layer, "src_head": head}, {"dst_layer": layer, "dst_head": head}
        kernels = [result[p]["projection_kernel"].isel(side).values for p in ("OQ", "OK", "OV") for side in sides]
        largest.append(max(np.nanmax(k) if not np.isnan(k).all() else -1 for k in kernels))
    truth = [label in ("L0H0", "L1H2") for label in labels]
    assert by_target["a"].average_precision == pytest.approx(average_precision_score(truth, largest))
    assert by_target["a"].base_rate == pytest.approx(2 / 6)
    assert by_target[ANY].base_rate == pytest.approx(3 / 6)


def test_curves_are_drawn_where_there_are_classes() -> None:
    result = affinity.compute(gpt2(), metrics=("pk",))
    assert "Classes found by affinity" not in affinity_figures(result)
    drawn = affinity_figures(result, {"L0H0": "<b>bold</b>"})["Classes found by affinity"]
    assert drawn.data[0].name == "&lt;b&gt;bold&lt;/b&gt;"[:24]
    np.testing.assert_allclose(drawn.data[0].y, class_curves(result, {"L0H0": "x"})[0].precision)


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
    examined = [Examination(claim, "pass") for claim in ledger()]
    drawn = claims_by_document(examined)
    assert sum(sum(bars.x) for bars in drawn.data) == len(ledger())
    assert {bars.name for bars in drawn.data} == {claim.status for claim in ledger()}


def test_the_page_of_the_ledger_shows_every_claim_and_the_curves() -> None:
    examined = [Examination(claim, "skipped", reason="not now") for claim in ledger()]
    html = claims_page(examined)
    assert html.count("skipped: not now") == len(ledger())
    for name in figures(examined):
        assert f"<h3>{name}</h3>" in html


def test_the_command_writes_the_page_and_does_not_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "claims.html"
    line = ["claims", "--id", "6.33", "--html", str(path)]
    assert CliRunner().invoke(app, line).exit_code == 0
    assert "6.33" in path.read_text()
    assert "--force" in str(CliRunner().invoke(app, line).exception)
