"""Published numbers of head affinity, on GPT-2's real attention: they must come out to the printed digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import headspan
from headspan.errors import HeadspanError
from headspan.heads import Heads
from headspan.ledger.models import reproduction
from headspan.lenses.affinity.robustness import fold_robustness
from headspan.lenses.affinity.wiring import edges, hub_scores, ranked_hubs
from headspan.result import Result


@pytest.fixture(scope="module")
def heads(gpt2_attention: Path) -> Heads:
    return headspan.open(gpt2_attention).heads()


@pytest.fixture(scope="module")
def result(heads: Heads) -> Result:
    return headspan.affinity(heads, pairings="all")


@pytest.mark.slow
def test_the_papers_numbers_come_out_to_the_printed_digits(heads: Heads) -> None:
    """arXiv 2601.10266, figures 1, 5 and 8."""
    lines = reproduction("2601.10266", heads)
    assert len(lines) == 24
    assert [line for line in lines if not line.agrees] == []


def test_another_model_or_paper_is_not_compared(stories: Path, heads: Heads) -> None:
    with pytest.raises(HeadspanError, match="is about GPT-2 small"):
        reproduction("2601.10266", headspan.open(stories).heads())
    with pytest.raises(HeadspanError, match=r"headspan reproduces 2601\.10266, not '1706\.03762'"):
        reproduction("1706.03762", heads)


def test_reference_values_to_more_digits_than_were_printed(result: Result) -> None:
    """Values of the reference page's definition in float64."""
    expected = {"QQ": (8.467, 2.876), "VO": (5.664, 1.149)}
    for pairing, (mean, kl) in expected.items():
        node = result[pairing]
        assert float(node.projection_kernel_mean) == pytest.approx(mean, abs=5e-4)
        assert float(node.projection_kernel_kl) == pytest.approx(kl, abs=5e-4)
        assert float(node.projection_kernel_mean_low) < mean < float(node.projection_kernel_mean_high)
    assert float(result["OV"].projection_kernel_mean) < 16 / 3


def test_l4h7_is_the_first_hub_by_every_definition(result: Result) -> None:
    for definition in ("excess", "kernel", "degree"):
        assert ranked_hubs(hub_scores(result, definition))["head"][0] == "L4H7"


def test_most_pairs_beat_haar_and_almost_none_the_reverse_null(result: Result) -> None:
    for pairing in ("OQ", "OK"):
        table = edges(result, pairing)
        assert 0.6 < (table["q_haar"] < 0.05).mean() < 0.8
        assert (table["q_reverse"] < 0.05).mean() < 0.04


TWO_WAY = {
    "OQ": (0.145, 364, 173, 45, 37, ("L10H0", "L11H2", 19.2, 4.2, 10.4)),
    "OK": (0.135, 471, 201, 41, 11, ("L4H11", "L6H9", 38.4, 5.3, 14.6)),
    "OV": (0.152, 599, 238, 108, 23, ("L9H0", "L11H3", 19.0, 3.9, 10.5)),
}
"""Scale, pairs with q < 0.05 in causal and in reverse order, strong pairs likewise, and the pair of the largest z: the
reference page's."""


@pytest.mark.parametrize("pairing", TWO_WAY)
def test_the_two_way_null_gives_the_reference_pages_numbers(result: Result, pairing: str) -> None:
    scale, forward, backward, strong, _, best = TWO_WAY[pairing]
    node = result.to_json()["pairings"][pairing]
    assert node["n_pairs"] == 9504
    assert node["scale"] == pytest.approx(scale, abs=6e-4)
    assert (node["n_significant"], node["n_significant_reverse"]) == (forward, backward)
    table = edges(result, pairing)
    assert list(table["tier"]).count("strong") == node["projection_kernel_n_strong"] == strong
    assert list(table["tier"]).count("stands out") == forward - strong
    first = result.top(1, pairing=pairing, by="z").iloc[0]
    assert tuple(first[["src", "dst"]]) == best[:2]
    np.testing.assert_allclose(first[["score", "expected", "z"]].astype(float), best[2:], atol=0.051)


@pytest.mark.slow
def test_the_kernel_survives_folding_and_the_composition_score_does_not(heads: Heads) -> None:
    found = fold_robustness(heads)
    kernel, score = (found["top_overlap"].sel(metric=metric) for metric in ("projection_kernel", "composition_score"))
    assert ((kernel >= 18) & (kernel <= 20)).all()
    assert ((score >= 1) & (score <= 11)).all()
    assert found["spearman"].sel(metric="projection_kernel").min() > 0.96


def test_a_pairs_report_agrees_with_scipy_and_with_the_tables(heads: Heads, result: Result) -> None:
    report = headspan.channels(heads, "L4H11", "5.1", pairings="OK,QQ", draws=50)
    ok = report["pair/OK"]
    best = result.top(1, pairing="OK").iloc[0]
    assert (best["src"], best["dst"]) == ("L4H11", "L5H1")
    assert float(ok.projection_kernel) == pytest.approx(best["score"])
    assert int(ok.projection_kernel_rank) == 1
    W_O, W_K = heads.layer(4).W_O[0, 11].double().numpy(), heads.layer(5).W_K[0, 1].double().numpy()
    angles = np.sort(np.degrees(subspace_angles(W_O.T, W_K)))
    np.testing.assert_allclose(ok["angle"], angles, atol=1e-3)
    assert np.sum(np.cos(np.radians(angles)) ** 2) == pytest.approx(float(ok.projection_kernel), abs=1e-8)
    assert np.isnan(report["pair/QQ"].projection_kernel_p.sel(null="reverse"))
    assert report.attrs["command"].endswith("L4H11 L5H1")


def test_findings_name_the_known_structure(result: Result) -> None:
    said = " ".join(finding.statement for finding in result.findings)
    assert "L4H7 is the strongest hub" in said
    assert "L4H11 → L5H1 is the strongest K-composition: the subspaces overlap in 39.3 of 64 dimensions" in said


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_sketched_top_20_is_the_exact_one(heads: Heads, result: Result, seed: int) -> None:
    found = headspan.affinity(heads, algorithm="sketch", top=20, seed=seed)
    for pairing in ("OQ", "OK", "OV"):
        mine, whole = edges(found, pairing, top=20), edges(result, pairing, top=20)
        assert int(found[pairing].certified) == 20
        assert int(found[pairing].verified) < 0.1 * len(edges(result, pairing))
        assert list(zip(mine["src"], mine["dst"], strict=True)) == list(zip(whole["src"], whole["dst"], strict=True))
        np.testing.assert_allclose(mine["score"], whole["score"], rtol=1e-9)
