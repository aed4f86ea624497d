"""Heads as subspaces: what the angles, distances, expected values and flags must be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import torch

import headspan
from headspan.errors import ArgumentError, DegenerateSubspace, FoldError
from headspan.lenses.similarity import measurement
from headspan.subspaces import complement, orthonormal_basis, principal_angles
from tests.families.tiny_models import CASES, COMMON, Case

D, HEADS, WIDTH = 24, 3, 8


def tiny(name: str) -> headspan.Model:
    return headspan.open(next(case for case in CASES if case.name == name).model())


def gpt2(change=None, **settings) -> headspan.Heads:
    """A random GPT-2, with its fused query-key-value matrices changed in place before it is opened."""
    shape = {"n_embd": D, "n_head": HEADS, "n_layer": 2, "n_positions": 32, **settings}
    model = Case("gpt2", "gpt2", {**COMMON, **shape}).model()
    if change is not None:
        with torch.no_grad():
            change([block.attn.c_attn.weight for block in model.h])
    return headspan.open(model).heads()


def quick(heads: headspan.Heads, **options) -> headspan.Result:
    return headspan.similarity(heads, **{"samples": 2, "maps": False, **options})


def columns(role: str, head: int, width: int = WIDTH, d: int = D) -> slice:
    start = "QK".index(role) * d + head * width
    return slice(start, start + width)


@pytest.fixture(scope="module")
def heads() -> headspan.Heads:
    return gpt2()


@pytest.fixture(scope="module")
def result(heads: headspan.Heads) -> headspan.Result:
    return quick(heads, maps=True)


@pytest.fixture(scope="module")
def grouped() -> headspan.Heads:
    return tiny("llama").heads()


def test_the_four_families_of_angles_are_those_of_explicit_bases(
    heads: headspan.Heads, result: headspan.Result
) -> None:
    Q, K = (orthonormal_basis(W.double()) for W in (heads.W_Q, heads.W_K))
    spaces = {"RQ": Q, "RK": K, "NQ": complement(Q), "NK": complement(K)}
    for name in ("RQ_RK", "NQ_NK", "RQ_NK", "NQ_RK"):
        first, second = name.split("_")
        expected = principal_angles(spaces[first], spaces[second]).numpy()
        np.testing.assert_allclose(result.grid()[f"angles_{name}"].values, expected, atol=1e-12)


def test_scipy_finds_the_same_query_key_angles(heads: headspan.Heads, result: headspan.Result) -> None:
    for layer in range(2):
        for head in range(HEADS):
            W_Q, W_K = heads.W_Q[layer, head].double().numpy(), heads.W_K[layer, head].double().numpy()
            expected = np.sort(scipy.linalg.subspace_angles(W_Q, W_K))
            found = result["angles_RQ_RK"].sel(head=(layer, head)).values
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_null_spaces_share_what_the_dimensions_leave(result: headspan.Result) -> None:
    assert (result["shared_null_dimension"] == D - 2 * WIDTH).all()
    assert (result["shared_null_dimension"] == result["shared_null_dimension_null"]).all()


def test_random_heads_are_as_the_null_says() -> None:
    many = quick(gpt2(n_embd=64, n_head=8, n_layer=6), across_layers=False)
    for name in ("grassmann_z", "projection_kernel_z", "layer_distance_z", "diversity_z"):
        z = many[name].values
        z = z[np.isfinite(z)]
        assert abs(z.mean()) < 4 / math.sqrt(len(z)), name
        assert 0.5 < z.std() < 1.5, name
    assert (many["projection_kernel_q"] > 0.01).all()
    assert 0.5 < many["own_key_place"].mean() / 4.5 < 1.5
    assert many["projection_kernel_p"].min() > 0.001
    np.testing.assert_allclose(many["angle_count"].sum(), many["angle_count_null"].sum())


def test_aligned_and_orthogonal_queries_and_keys_depart_to_either_side() -> None:
    def change(weights: list[torch.Tensor]) -> None:
        weights[0][:, columns("K", 0)] = weights[0][:, columns("Q", 0)] @ torch.randn(WIDTH, WIDTH).double()
        Q = torch.linalg.qr(weights[0][:, columns("Q", 1)]).Q
        K = weights[0][:, columns("K", 1)]
        weights[0][:, columns("K", 1)] = K - Q @ (Q.mT @ K)

    found = quick(gpt2(change))
    same, apart = found.dataset().sel(head="L0H0"), found.dataset().sel(head="L0H1")
    assert float(same["projection_kernel"]) == pytest.approx(WIDTH)
    assert float(same["grassmann"]) == pytest.approx(0, abs=1e-6)
    assert float(same["projection_kernel_z"]) > 5
    assert int(same["shared_null_dimension"]) == D - WIDTH
    assert int(same["dimension"]) == WIDTH
    assert float(same["own_key_place"]) == 1
    assert float(apart["projection_kernel"]) == pytest.approx(0, abs=1e-12)
    assert float(apart["grassmann"]) == pytest.approx(math.sqrt(WIDTH) * math.pi / 2)
    assert float(apart["projection_kernel_z"]) < -5
    assert float(apart["projection_kernel_p"]) < 1e-6
    assert float(same["projection_kernel_p"]) < 1e-6


def test_a_head_does_not_see_its_null_spaces(result: headspan.Result) -> None:
    assert (result["null_change"] < 1e-13).all()
    assert (result["read_change"] > 1).all()
    assert (result["random_change"] > 0.1).all()


def test_biases_do_not_open_the_null_spaces() -> None:
    found = quick(tiny("llama-with-bias-and-wide-heads").heads())
    assert (found["null_change"] < 1e-13).all()


def test_each_query_head_meets_the_kv_head_it_reads(grouped: headspan.Heads) -> None:
    found = quick(grouped)
    W_Q, W_K = grouped.W_Q.double(), grouped.W_K.double()
    for head in range(4):
        expected = scipy.linalg.subspace_angles(W_Q[1, head].numpy(), W_K[1, head // 2].numpy())
        np.testing.assert_allclose(found["angles_RQ_RK"].sel(head=(1, head)), np.sort(expected), atol=1e-12)
    assert found.attrs["n_kv_heads"] == 2
    assert set(np.unique(found["own_key_place"])) <= {1.0, 2.0}


def test_a_zero_head_is_flagged_and_undefined_and_disturbs_nobody(result: headspan.Result) -> None:
    def change(weights: list[torch.Tensor]) -> None:
        weights[0][:, columns("K", 1)] = 0

    found = quick(gpt2(change), maps=True)
    assert found["degenerate"].values.sum() == 1
    odd = found.dataset().sel(head="L0H1")
    assert bool(odd["degenerate"])
    for name in (
        "grassmann",
        "projection_kernel",
        "projection_kernel_p",
        "projection_kernel_q",
        "angles_NQ_NK",
        "null_change",
        "own_key_place",
    ):
        assert odd[name].isnull().all(), name
    assert int(odd["rank_K"]) == 0
    assert int(odd["dimension"]) == 0
    assert int(odd["shared_null_dimension"]) == D - WIDTH
    kept = [each.grid().sel(layer=1) for each in (found, result)]
    np.testing.assert_allclose(kept[0]["projection_kernel"], kept[1]["projection_kernel"])
    assert np.isfinite(found["diversity"]).all()
    assert int(found["mds"].notnull().all("axis").sum()) == int(found["tsne"].notnull().all("axis").sum()) == 5


def test_a_model_of_zeros_has_a_result_and_no_scores() -> None:
    def change(weights: list[torch.Tensor]) -> None:
        for weight in weights:
            weight.zero_()

    found = quick(gpt2(change), maps=True)
    assert found["degenerate"].all()
    for name in ("grassmann", "distance", "diversity", "mds", "tsne", "layer_cluster"):
        assert found[name].isnull().all(), name
    assert found.attrs["sample_head"] == "none"
    assert "sample_tsne" not in found


def test_a_rank_deficient_head_counts_with_its_true_dimension() -> None:
    def change(weights: list[torch.Tensor]) -> None:
        weights[0][:, columns("Q", 0)] = torch.randn(D, 3).double() @ torch.randn(3, WIDTH).double()

    heads = gpt2(change)
    odd = quick(heads).dataset().sel(head="L0H0")
    assert (int(odd["rank_Q"]), int(odd["rank_K"]), int(odd["dimension"])) == (3, WIDTH, 3 + WIDTH)
    assert bool(odd["deficient"])
    assert not bool(odd["degenerate"])
    assert int(odd["angles_RQ_RK"].notnull().sum()) == 3
    assert int(odd["angles_NQ_NK"].notnull().sum()) == D - WIDTH
    assert float(odd["projection_kernel_null"]) == pytest.approx(3 * WIDTH / D)
    assert int(odd["shared_null_dimension"]) == D - 3 - WIDTH
    Q = orthonormal_basis(heads.W_Q[0, 0].double(), 1e-9)
    N_Q, K = complement(Q[None])[0], orthonormal_basis(heads.W_K[0, 0].double())
    expected = principal_angles(N_Q, complement(K)).numpy()
    np.testing.assert_allclose(odd["angles_NQ_NK"].values[: len(expected)], expected, atol=1e-7)


def test_a_head_as_wide_as_the_model_has_no_null_space() -> None:
    found = quick(gpt2(n_head=1), maps=True)
    assert found.dataset().sizes["null_angle"] == 0
    assert (found["shared_null_dimension"] == 0).all()
    assert np.allclose(found["projection_kernel"], D)
    assert found["projection_kernel_z"].isnull().all()
    assert np.allclose(found["distance"], 0, atol=1e-12)
    assert found["null_change"].isnull().all()
    assert found["diversity"].isnull().all()


def test_heads_wider_than_half_the_model_must_meet() -> None:
    heads = tiny("llama-with-bias-and-wide-heads").heads()
    found = quick(heads)
    Q = orthonormal_basis(heads.W_Q.double())
    K = orthonormal_basis(heads.per_query_head(heads.W_K).double())
    expected = principal_angles(complement(Q), complement(K)).numpy()
    np.testing.assert_allclose(found.grid()["angles_NQ_NK"], expected, atol=1e-12)
    assert np.isfinite(found.grid()["distance_z"].values[0, 0, 1]).all()


def test_one_layer_and_one_head_work() -> None:
    single = quick(gpt2(n_layer=1))
    assert "distance" not in single
    assert single.attrs["across_layers"] == "skipped: there is one layer"
    alone = quick(gpt2(n_layer=1, n_head=1, n_embd=8), maps=True)
    assert alone["diversity"].isnull().all()


def test_many_heads_skip_the_comparison_across_layers_unless_asked(
    heads: headspan.Heads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "MANY_HEADS", 5)
    skipped = quick(heads)
    assert "distance" not in skipped
    assert skipped.attrs["across_layers"].startswith("skipped: 6 heads, more than 5")
    assert "distance" in quick(heads, across_layers=True)
    assert quick(heads, across_layers=False).attrs["across_layers"] == "skipped: not asked for"


def test_an_encoder_works_and_what_cannot_be_folded_is_refused() -> None:
    bert = tiny("bert")
    assert np.isfinite(quick(bert.heads())["grassmann"]).all()
    with pytest.raises(FoldError, match="nothing to fold"):
        bert.heads(fold="layernorm")


def test_the_fold_state_is_part_of_the_result(result: headspan.Result) -> None:
    folded = quick(tiny("gpt2").heads(fold="layernorm"))
    assert (result.attrs["fold"], folded.attrs["fold"]) == ("none", "layernorm")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": "union"}, "space='union' is unknown; it is one of sum, intersection, qk"),
        ({"distance": "euclid"}, "distance='euclid' is unknown; it is one of grassmann"),
        ({"space": "qk", "qk_rank": 9}, r"qk_rank=9 is out of range; it is in 1\.\.8"),
        ({"head": "L7H0"}, r"head=L7H0 is not a query head; it is one of layers 0\.\.1"),
        ({"head": "L0K0"}, "head=L0K0 is not a query head"),
        ({"samples": 0}, "samples=0 is out of range; it is at least 1"),
        ({"tolerance": 2.0}, "tolerance is relative"),
    ],
)
def test_what_does_not_fit_is_refused(heads: headspan.Heads, options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        headspan.similarity(heads, **options)


def test_a_weight_that_is_not_a_number_raises() -> None:
    def change(weights: list[torch.Tensor]) -> None:
        weights[0][0, 0] = torch.nan

    with pytest.raises((DegenerateSubspace, headspan.errors.CheckpointError), match="NaN"):
        quick(gpt2(change))


def test_heads_are_selected_by_their_labels(heads: headspan.Heads, result: headspan.Result) -> None:
    assert result["distance"].dims == ("src", "dst")
    one = result["distance"].sel(src="L0H1", dst="1.2")
    assert float(one) == float(result.grid()["distance"][0, 1, 1, 2])
    assert float(result["layer_distance"].sel(head="L1H0")[2]) == pytest.approx(
        float(result["distance"].sel(src="L1H0", dst="L1H2")), abs=1e-12
    )
    with pytest.raises(ArgumentError, match="head='L7H0' is not on this axis"):
        result["grassmann"].sel(head="L7H0")
