"""Published numbers of head affinity, on GPT-2's real attention: they must come out to the printed digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from headspan.findings import findings_of
from headspan.lenses.affinity.edges import edges, pairing_node, top_edges
from headspan.lenses.affinity.hubs import hub_scores, ranked_hubs
from headspan.lenses.affinity.pair import pair_report
from headspan.lenses.affinity.reproduction import reproduced
from scipy.linalg import subspace_angles

import headspan
from headspan.errors import HeadspanError
from headspan.heads import Heads
from headspan.lenses import affinity
from headspan.lenses.affinity import sketch
from headspan.lenses.affinity.robustness import fold_robustness


@pytest.fixture(scope="module")
def heads(gpt2_attention: Path) -> Heads:
    return headspan.open(gpt2_attention).heads()


@pytest.fixture(scope="module")
def result(heads: Heads) -> xr.DataTree:
    return affinity.compute(heads, pairings="all")


def test_the_papers_numbers_come_out_to_the_printed_digits(heads: Heads) -> None:
    """arXiv 2601.10266, figures 1, 5 and 8."""
    lines = reproduced("2601.10266", heads)
    assert len(lines) == 24
    assert [line for line in lines if not line.agrees] == []


def test_another_model_or_paper_is_not_compared(stories: Path, heads: Heads) -> None:
    with pytest.raises(HeadspanError, match="is about GPT-2 small"):
        reproduced("2601.10266", headspan.open(stories).heads())
    with pytest.raises(HeadspanError, match=r"headspan reproduces 2601\.10266, not '1706\.03762'"):
        reproduced("1706.03762", heads)


def test_reference_values_to_more_digits_than_were_printed(result: xr.DataTree) -> None:
    """Values of the reference page's definition in float64."""
    expected = {"QQ": (8.467, 2.876), "VO": (5.664, 1.149)}
    for pairing, (mean, kl) in expected.items():
        node = pairing_node(result, pairing).sel(metric="pk")
        assert float(node["mean"]) == pytest.approx(mean, abs=5e-4)
        assert float(node["kl"]) == pytest.approx(kl, abs=5e-4)
        assert float(node["mean_low"]) < mean < float(node["mean_high"])
    assert float(pairing_node(result, "OV")["mean"].sel(metric="pk")) < 16 / 3


def test_l4h7_is_the_first_hub_by_every_definition(result: xr.DataTree) -> None:
    for definition in ("excess", "kernel", "degree"):
        assert ranked_hubs(hub_scores(result, definition))["head"][0] == "L4H7"


def test_most_pairs_beat_haar_and_almost_none_the_anticausal_null(result: xr.DataTree) -> None:
    for pairing in ("OQ", "OK"):
        table = edges(result, pairing)
        assert 0.6 < (table["q_value_haar"] < 0.05).mean() < 0.8
        assert (table["q_value_anticausal"] < 0.05).mean() < 0.04


def test_the_kernel_survives_folding_and_the_composition_score_does_not(heads: Heads) -> None:
    table = fold_robustness(heads)
    kept = {metric: part["top_overlap"] for metric, part in table.groupby("metric")}
    assert kept["pk"].between(18, 20).all()
    assert kept["cs"].between(1, 11).all()
    assert table.groupby("metric")["spearman"].min()["pk"] > 0.96


def test_a_pairs_report_agrees_with_scipy_and_with_the_tables(heads: Heads, result: xr.DataTree) -> None:
    report = pair_report(heads, "L4H11", "5.1", pairings="OK,QQ")
    ok = report["pairings"]["OK"]
    best = top_edges(result, "OK").iloc[0]
    assert (best["src"], best["dst"]) == ("L4H11", "L5H1")
    assert ok["pk"]["score"] == pytest.approx(best["score"])
    assert ok["pk"]["rank"] == 1
    W_O, W_K = heads.layer(4).W_O[0, 11].double().numpy(), heads.layer(5).W_K[0, 1].double().numpy()
    angles = np.sort(np.degrees(subspace_angles(W_O.T, W_K)))
    np.testing.assert_allclose(ok["angles"]["degrees"], angles, atol=1e-3)
    assert np.sum(np.cos(np.radians(angles)) ** 2) == pytest.approx(ok["pk"]["score"], abs=1e-8)
    assert np.isnan(report["pairings"]["QQ"]["pk"]["nulls"]["anticausal"]["p_value"])
    assert report["command"].endswith("L4H11 L5H1")


def test_findings_name_the_known_structure(result: xr.DataTree) -> None:
    said = " ".join(finding.statement for finding in findings_of("affinity", result))
    assert "L4H7 is the strongest hub" in said
    assert "What L4H11 writes, L5H1 reads most through its keys: they share 39.3 of 64 dimensions." in said


@pytest.mark.parametrize("seed", [0, 1])
def test_the_sketched_top_20_is_the_exact_one(heads: Heads, result: xr.DataTree, seed: int) -> None:
    found = sketch.compute(heads, top=20, seed=seed)
    for pairing in ("OQ", "OK", "OV"):
        mine, whole = top_edges(found, pairing), top_edges(result, pairing)
        assert found[pairing].attrs["certified"] == 20
        assert found[pairing].attrs["verified"] < 0.1 * len(edges(result, pairing))
        assert list(zip(mine["src"], mine["dst"], strict=True)) == list(zip(whole["src"], whole["dst"], strict=True))
        np.testing.assert_allclose(mine["score"], whole["score"], rtol=1e-9)
