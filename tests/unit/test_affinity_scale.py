"""Affinity where bases do not fit into memory, and where a table of all pairs would be too much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import headspan
from headspan.errors import ArgumentError, DegenerateSubspace, MemoryBudgetError
from headspan.lenses.affinity import costs
from headspan.lenses.affinity.costs import EXACT_OPERATIONS, affinity_plan
from headspan.lenses.affinity.estimates import Question, candidates, helpful_width
from headspan.lenses.affinity.wiring import edges
from headspan.result import Result

PAIRINGS = ("OQ", "OK", "OV")
WIDE = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 2304,
    "head_dim": 16,
    "intermediate_size": 8,
    "vocab_size": 8,
}
"""Few narrow heads in a wide model."""


@pytest.fixture(scope="module")
def planted() -> headspan.Checkpoint:
    return headspan.synthetic("tiny", planted=4, seed=2, layers=6)


@pytest.fixture(scope="module")
def exact(planted: headspan.Checkpoint) -> Result:
    return headspan.affinity(planted)


@pytest.fixture(scope="module")
def sketched(planted: headspan.Checkpoint) -> Result:
    return headspan.affinity(planted, algorithm="sketch", top=4, seed=1)


def pairs(result: Result, pairing: str, top: int) -> list[tuple[str, str]]:
    found = result.top(top, pairing=pairing)
    return list(zip(found["src"], found["dst"], strict=True))


@pytest.mark.parametrize("algorithm", ["gram", "projector"])
def test_spilled_scores_are_those_made_in_memory(planted: headspan.Checkpoint, exact: Result, algorithm: str) -> None:
    spilled = headspan.affinity(planted, memory="9MB", algorithm=algorithm)
    assert spilled.attrs["scratch_bytes"] > 0
    assert exact.attrs["scratch_bytes"] == 0
    for pairing in PAIRINGS:
        for name in (
            "projection_kernel",
            "composition_score",
            "projection_kernel_p",
            "src_rank",
            "composition_score_mean",
        ):
            np.testing.assert_allclose(spilled[pairing][name], exact[pairing][name], rtol=1e-7, atol=1e-12)


@pytest.mark.slow
def test_all_sixteen_pairings_spill_too(planted: headspan.Checkpoint) -> None:
    heads = planted.heads(layers=range(3))
    spilled = headspan.affinity(heads, pairings="all", metrics="pk", memory="6MB", draws=2)
    whole = headspan.affinity(heads, pairings="all", metrics="pk", draws=2)
    assert spilled.attrs["scratch_bytes"] > 0
    for pairing in whole.data.children:
        np.testing.assert_allclose(spilled[pairing]["projection_kernel"], whole[pairing]["projection_kernel"])


def test_single_precision_says_what_it_cost(planted: headspan.Checkpoint, exact: Result) -> None:
    single = headspan.affinity(planted, metrics="pk", dtype="float32", draws=2)
    real = max(float(np.abs(single[p]["projection_kernel"] - exact[p]["projection_kernel"]).max()) for p in PAIRINGS)
    assert 0 < single.attrs["float32_error"] < 1e-4
    assert real <= single.attrs["float32_error"] < 10 * real
    assert "float32_error" not in exact.attrs


def test_wide_models_are_computed_in_single_precision_unless_told() -> None:
    heads = headspan.synthetic(WIDE).heads()
    assert headspan.affinity(heads, draws=2).attrs["dtype"] == "float32"
    assert headspan.affinity(heads, draws=2, dtype="float64").attrs["dtype"] == "float64"


def test_similarity_of_wide_models_says_what_single_precision_cost() -> None:
    result = headspan.similarity(headspan.synthetic(WIDE), across_layers=False, maps=False)
    assert result.attrs["computed_in"] == "float32"
    assert 0 < result.attrs["float32_error"] < 1e-4


@pytest.mark.parametrize("seed", range(5))
def test_the_sketched_top_is_the_exact_top(seed: int) -> None:
    checkpoint = headspan.synthetic("tiny", planted=5, seed=seed, layers=6, strength=7)
    found = headspan.affinity(checkpoint, algorithm="sketch", top=5, seed=seed + 10)
    whole = headspan.affinity(checkpoint, metrics="pk", draws=2)
    for pairing in PAIRINGS:
        assert int(found[pairing].certified) == 5
        assert pairs(found, pairing, 5) == pairs(whole, pairing, 5)
        np.testing.assert_allclose(edges(found, pairing, top=5)["score"], edges(whole, pairing, top=5)["score"])


def test_a_sketch_finds_all_planted_pairs_and_says_how_sure_it_is(
    planted: headspan.Checkpoint, sketched: Result
) -> None:
    for pairing in PAIRINGS:
        wanted = {(str(p.src), str(p.dst)) for p in planted.store.planted if p.pairing == pairing}  # type: ignore[attr-defined]
        assert set(pairs(sketched, pairing, 4)) == wanted
        about = sketched[pairing]
        assert int(about.certified) == 4
        assert int(about.verified) == about["top"].sizes["pair"]
    assert sketched.attrs["confidence"] == 0.99
    assert sketched.attrs["algorithm"] == "sketch"


def test_estimates_lie_within_their_errors_and_means_over_heads_near_the_true_ones(
    sketched: Result, exact: Result
) -> None:
    for pairing in PAIRINGS:
        node, whole = sketched[f"{pairing}/top"], exact.grid(pairing)["projection_kernel"]
        outgoing = sketched.grid(f"{pairing}/heads")["outgoing"]
        z = (node["estimate"] - node["projection_kernel"]) / node["standard_error"]
        assert float(np.abs(z).max()) < 6
        true = whole.mean(("dst_layer", "dst_head"))[:-1]
        assert float(np.abs(outgoing[:-1] - true).mean()) < 0.25
        assert np.isnan(outgoing[-1]).all()


def test_q_values_of_a_sketch_are_no_lower_than_those_of_all_pairs(sketched: Result, exact: Result) -> None:
    for pairing in PAIRINGS:
        some, whole = edges(sketched, pairing, top=4), edges(exact, pairing, top=4)
        for name in ("p_haar", "null_haar", "z_haar"):
            np.testing.assert_allclose(some[name], whole[name], rtol=1e-6)
        assert (some["q_haar"] >= whole["q_haar"] * (1 - 1e-9)).all()
        assert "q_reverse" not in some


def test_a_sketch_spills_to_a_scratch_file_too(planted: headspan.Checkpoint, sketched: Result) -> None:
    small = headspan.affinity(planted, algorithm="sketch", top=4, seed=1, memory="8MB")
    for pairing in PAIRINGS:
        assert pairs(small, pairing, 4) == pairs(sketched, pairing, 4)


def test_random_weights_have_no_top_to_certify() -> None:
    found = headspan.affinity(headspan.synthetic("gpt2", layers=4, planted=1, seed=1), algorithm="sketch", top=5)
    for pairing in PAIRINGS:
        assert int(found[pairing].certified) == 1
    statements = " ".join(finding.statement for finding in found.findings)
    assert "The 1 strongest pairs" in statements
    assert "5 were asked for" in statements


def test_a_sketch_too_narrow_grows() -> None:
    checkpoint = headspan.synthetic("gpt2", layers=4, planted=6, strength=14, seed=1)
    found = headspan.affinity(checkpoint, algorithm="sketch", top=6, width=48)
    assert found.attrs["sketch_width"] > 48
    assert all(int(found[pairing].certified) == 6 for pairing in PAIRINGS)


def test_results_of_a_sketch_go_wherever_others_go(sketched: Result, tmp_path: Path) -> None:
    assert set(sketched.figures) >= {"Wiring diagram", "Wiring around an ellipse"}
    assert "All pairs" not in sketched.figures
    assert len(sketched.table()) == sum(sketched[f"{pairing}/top"].sizes["pair"] for pairing in PAIRINGS)
    assert list(sketched.top(3).columns) == ["pairing", "src", "dst", "score", "expected", "z", "p", "q"]
    document = sketched.to_json(top=3)
    assert document["pairings"]["OQ"]["projection_kernel_n_pairs"] == 8 * 8 * 15
    assert "composition_score_mean" not in document["pairings"]["OQ"]
    assert len(document["pairs"]) == 3 * 3
    assert sketched["hub_score"].shape == (6 * 8,)
    again = headspan.load(sketched.save(tmp_path / "sketch.nc"))
    assert again.top(5).equals(sketched.top(5))
    statements = [finding.statement for finding in sketched.findings]
    assert any("are exact with confidence 99 %" in statement for statement in statements)


def test_findings_say_which_algorithm_ran(sketched: Result, exact: Result) -> None:
    for result, words in ((sketched, "sketched and then verified"), (exact, "by inner products of projectors")):
        assert any(words in finding.evidence for finding in result.findings)


def question(table: torch.Tensor, exact: dict[tuple[int, int], float], **changes: int) -> Question:
    settings = {"top": 2, "limit": 3, "width": 256} | changes
    return Question(table, exact, dimensions=(64, 64), failure=1e-3, **settings)  # type: ignore[arg-type]


def test_every_pair_that_may_be_in_the_top_is_a_candidate() -> None:
    table = torch.full((10, 10), 5.0, dtype=torch.float64)
    table[0, 1], table[2, 3], table[4, 5] = 20.0, 18.0, 17.0
    chosen = candidates(question(table, {(0, 1): 19.0, (2, 3): 18.5}))
    assert chosen.certified == 2
    assert set(chosen.pairs) == {(0, 1), (2, 3), (4, 5)}


def test_fewer_pairs_are_certified_where_too_many_are_alike() -> None:
    table = torch.full((10, 10), 5.0, dtype=torch.float64)
    table[0, 1] = 20.0
    asked = question(table, {(0, 1): 20.0, (0, 0): 5.0})
    chosen = candidates(asked)
    assert (chosen.certified, chosen.pairs) == (1, ((0, 1),))
    assert helpful_width(asked, 768) is None


def test_the_cheaper_exact_algorithm_is_chosen_and_the_sketch_where_both_are_dear() -> None:
    few = headspan.synthetic("mistral-7b", layers=2).heads()
    assert affinity_plan(headspan.synthetic(WIDE).heads(), PAIRINGS, 1, 10**9).chosen.algorithm == "gram"
    assert affinity_plan(few, PAIRINGS, 1, 10**9).chosen.algorithm == "projector"
    large = affinity_plan(headspan.synthetic("llama-70b").heads(), PAIRINGS, 1, 6 * 10**9)
    assert large.chosen.algorithm == "sketch"
    assert min(cost.operations for cost in large.costs[:2]) > EXACT_OPERATIONS
    assert affinity_plan(few, PAIRINGS, 1, 10**9, "gram").reason == "asked for"


def test_operations_are_counted_as_documented() -> None:
    heads = headspan.synthetic("mistral-7b").heads().to("float32")
    gram, projector, _ = affinity_plan(heads, ("OQ",), 1, 10**9).costs
    n, d, p = 1024, 4096, 128
    bases = 2 * n * 4 * d * p**2
    assert gram.operations == 2 * n**2 * d * p**2 + bases
    assert projector.operations == n**2 * d**2 + 2 * n * d**2 * p + bases
    assert projector.scratch == 2 * n * d * p * 4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pairings": "QK"}, "scores the pairings OQ, OK, OV"),
        ({"top": 0}, "top >= 1"),
        ({"confidence": 1.0}, "0 < confidence < 1"),
        ({"width": 1}, "2 <= width <= d_model"),
        ({"width": 257}, "2 <= width <= 256"),
    ],
)
def test_what_a_sketch_cannot_do_is_refused(
    planted: headspan.Checkpoint, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(ArgumentError, match=problem):
        headspan.affinity(planted, algorithm="sketch", **options)  # type: ignore[arg-type]


def test_one_layer_has_nothing_to_sketch(planted: headspan.Checkpoint) -> None:
    with pytest.raises(DegenerateSubspace, match="only one layer"):
        headspan.affinity(planted.heads(layers=[0]), algorithm="sketch")


def test_an_unknown_algorithm_and_a_budget_for_nothing_are_refused(planted: headspan.Checkpoint) -> None:
    with pytest.raises(ArgumentError, match="algorithm='magic' is unknown"):
        headspan.affinity(planted, algorithm="magic")
    with pytest.raises(MemoryBudgetError, match=r"raise"):
        headspan.affinity(planted, memory="100kB")


def test_what_a_sketch_cannot_do_is_refused_where_it_would_be_chosen(
    planted: headspan.Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "EXACT_OPERATIONS", 1.0)
    assert headspan.affinity(planted, draws=2).attrs["algorithm"] == "sketch"
    with pytest.raises(ArgumentError, match="it has no reverse null; ask for algorithm='exact'"):
        headspan.affinity(planted, null="reverse")
    exact = headspan.affinity(planted, null="reverse", algorithm="exact", draws=2)
    assert exact.attrs["algorithm"] == "projector"
