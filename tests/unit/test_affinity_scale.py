"""Affinity where bases do not fit into memory, and where a table of all pairs would be too much."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
from headspan.findings import findings_of
from headspan.lenses.affinity.certifying import Question, candidates, helpful_width
from headspan.lenses.affinity.edges import edges, top_edges
from headspan.lenses.affinity.hubs import hub_scores
from headspan.lenses.affinity.tables import as_json, table

import headspan
from headspan.errors import DegenerateSubspace, MemoryBudgetError, ShapeError
from headspan.lenses import affinity, similarity
from headspan.lenses.affinity import sketch
from headspan.lenses.affinity.costs import EXACT_OPERATIONS, affinity_plan
from headspan.lenses.affinity.figures import figures

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
def exact(planted: headspan.Checkpoint) -> xr.DataTree:
    return affinity.compute(planted.heads())


@pytest.fixture(scope="module")
def sketched(planted: headspan.Checkpoint) -> xr.DataTree:
    return sketch.compute(planted.heads(), top=4, seed=1)


def pairs(result: xr.DataTree, pairing: str, top: int) -> list[tuple[str, str]]:
    found = top_edges(result, pairing, top=top)
    return list(zip(found["src"], found["dst"], strict=True))


@pytest.mark.parametrize("algorithm", ["gram", "projector"])
def test_spilled_scores_are_those_made_in_memory(
    planted: headspan.Checkpoint, exact: xr.DataTree, algorithm: str
) -> None:
    spilled = affinity.compute(planted.heads(), memory="9MB", algorithm=algorithm)
    assert spilled.attrs["scratch_bytes"] > 0
    assert exact.attrs["scratch_bytes"] == 0
    for pairing in PAIRINGS:
        for name in ("projection_kernel", "composition_score", "p_value", "src_rank", "mean"):
            np.testing.assert_allclose(spilled[pairing][name], exact[pairing][name], rtol=1e-7, atol=1e-12)


def test_all_sixteen_pairings_spill_too(planted: headspan.Checkpoint) -> None:
    heads = planted.heads(layers=range(3))
    spilled = affinity.compute(heads, pairings="all", metrics=("pk",), memory="6MB", draws=2)
    whole = affinity.compute(heads, pairings="all", metrics=("pk",), draws=2)
    assert spilled.attrs["scratch_bytes"] > 0
    for pairing in whole.children:
        np.testing.assert_allclose(spilled[pairing]["projection_kernel"], whole[pairing]["projection_kernel"])


def test_single_precision_says_what_it_cost(planted: headspan.Checkpoint, exact: xr.DataTree) -> None:
    single = affinity.compute(planted.heads(), metrics=("pk",), precision="float32", draws=2)
    real = max(float(np.abs(single[p]["projection_kernel"] - exact[p]["projection_kernel"]).max()) for p in PAIRINGS)
    assert 0 < single.attrs["float32_error"] < 1e-4
    assert real < 20 * single.attrs["float32_error"]
    assert "float32_error" not in exact.attrs


def test_wide_models_are_computed_in_single_precision_unless_told() -> None:
    heads = headspan.synthetic(WIDE).heads()
    assert affinity.compute(heads, draws=2).attrs["dtype"] == "float32"
    assert affinity.compute(heads, draws=2, precision="float64").attrs["dtype"] == "float64"


def test_similarity_of_wide_models_says_what_single_precision_cost() -> None:
    result = similarity.compute(headspan.synthetic(WIDE).heads(), across_layers=False, maps=False)
    assert result.attrs["computed_in"] == "float32"
    assert 0 < result.attrs["float32_error"] < 1e-4


@pytest.mark.parametrize("seed", range(5))
def test_the_sketched_top_is_the_exact_top(seed: int) -> None:
    checkpoint = headspan.synthetic("tiny", planted=5, seed=seed, layers=6, strength=7)
    found = sketch.compute(checkpoint.heads(), top=5, seed=seed + 10)
    whole = affinity.compute(checkpoint.heads(), metrics=("pk",), draws=2)
    for pairing in PAIRINGS:
        assert found[pairing].attrs["certified"] == 5
        assert pairs(found, pairing, 5) == pairs(whole, pairing, 5)
        np.testing.assert_allclose(edges(found, pairing, top=5)["score"], edges(whole, pairing, top=5)["score"])


def test_a_sketch_finds_all_planted_pairs_and_says_how_sure_it_is(
    planted: headspan.Checkpoint, sketched: xr.DataTree
) -> None:
    for pairing in PAIRINGS:
        wanted = {(str(p.src), str(p.dst)) for p in planted.store.planted if p.pairing == pairing}  # type: ignore[attr-defined]
        assert set(pairs(sketched, pairing, 4)) == wanted
        about = sketched[pairing].attrs
        assert about["certified"] == 4
        assert about["verified"] == sketched[pairing].sizes["pair"]
    assert sketched.attrs["confidence"] == 0.99
    assert sketched.attrs["algorithm"] == "sketch"


def test_estimates_lie_within_their_errors_and_means_over_heads_near_the_true_ones(
    sketched: xr.DataTree, exact: xr.DataTree
) -> None:
    for pairing in PAIRINGS:
        node, whole = sketched[pairing], exact[pairing]["projection_kernel"]
        z = (node["estimate"] - node["projection_kernel"]) / node["standard_error"]
        assert float(np.abs(z).max()) < 6
        true = whole.mean(("dst_layer", "dst_head"))[:-1]
        assert float(np.abs(node["outgoing"][:-1] - true).mean()) < 0.25
        assert np.isnan(node["outgoing"][-1]).all()


def test_q_values_of_a_sketch_are_no_lower_than_those_of_all_pairs(sketched: xr.DataTree, exact: xr.DataTree) -> None:
    for pairing in PAIRINGS:
        some, whole = edges(sketched, pairing, top=4), edges(exact, pairing, top=4)
        np.testing.assert_allclose(some["p_value_haar"], whole["p_value_haar"], rtol=1e-6)
        assert (some["q_value_haar"] >= whole["q_value_haar"] * (1 - 1e-9)).all()
        assert some["q_value_anticausal"].isna().all()


def test_a_sketch_spills_to_a_scratch_file_too(planted: headspan.Checkpoint, sketched: xr.DataTree) -> None:
    small = sketch.compute(planted.heads(), top=4, seed=1, memory="8MB")
    for pairing in PAIRINGS:
        assert pairs(small, pairing, 4) == pairs(sketched, pairing, 4)


def test_random_weights_have_no_top_to_certify() -> None:
    found = sketch.compute(headspan.synthetic("gpt2", layers=4, planted=1, seed=1).heads(), top=5)
    for pairing in PAIRINGS:
        assert found[pairing].attrs["certified"] == 1
    statements = " ".join(finding.statement for finding in findings_of("affinity", found))
    assert "The 1 strongest pairs" in statements
    assert "5 were asked for" in statements


def test_a_sketch_too_narrow_grows() -> None:
    checkpoint = headspan.synthetic("gpt2", layers=4, planted=6, strength=14, seed=1)
    found = sketch.compute(checkpoint.heads(), top=6, width=48)
    assert found.attrs["sketch_width"] > 48
    assert all(found[pairing].attrs["certified"] == 6 for pairing in PAIRINGS)


def test_results_of_a_sketch_go_wherever_others_go(sketched: xr.DataTree) -> None:
    assert set(figures(sketched)) >= {"Wiring diagram", "Wiring around an ellipse"}
    assert "All pairs" not in figures(sketched)
    assert len(table(sketched)) == sum(sketched[pairing].sizes["pair"] for pairing in PAIRINGS)
    assert as_json(sketched, 3)["pairings"]["OQ"]["pk"]["n_pairs"] == 8 * 8 * 15
    assert as_json(sketched)["pairings"]["OQ"]["cs"] is None
    assert hub_scores(sketched)["score"].shape == (6, 8)
    statements = [finding.statement for finding in findings_of("affinity", sketched)]
    assert any("are exact with confidence 99%" in statement for statement in statements)


def test_findings_say_which_algorithm_ran(sketched: xr.DataTree, exact: xr.DataTree) -> None:
    for result, words in ((sketched, "sketched and then verified"), (exact, "by inner products of projectors")):
        assert any(words in finding.evidence for finding in findings_of("affinity", result))


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
        ({"width": 1}, "2 <= width <= 256"),
    ],
)
def test_what_a_sketch_cannot_do_is_refused(
    planted: headspan.Checkpoint, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(ShapeError, match=problem):
        sketch.compute(planted.heads(), **options)  # type: ignore[arg-type]


def test_one_layer_has_nothing_to_sketch(planted: headspan.Checkpoint) -> None:
    with pytest.raises(DegenerateSubspace, match="only one layer"):
        sketch.compute(planted.heads(layers=[0]))


def test_an_unknown_algorithm_and_a_budget_for_nothing_are_refused(planted: headspan.Checkpoint) -> None:
    with pytest.raises(ShapeError, match="algorithm 'magic' is unknown"):
        affinity.compute(planted.heads(), algorithm="magic")
    with pytest.raises(MemoryBudgetError, match=r"raise"):
        affinity.compute(planted.heads(), memory="100kB")
