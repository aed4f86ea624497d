"""GPT-2's heads as subspaces: scipy's distances, the published value under the null, and heads known to be alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

import headspan

INDUCTION = {"L5H0", "L5H1", "L5H5", "L6H9", "L7H2", "L7H10"}
"""Induction heads of GPT-2 small: Wang et al. (2023), arXiv 2601.10266."""


@pytest.fixture(scope="module")
def heads(gpt2_attention: Path) -> headspan.Heads:
    return headspan.open(gpt2_attention).heads()


@pytest.fixture(scope="module")
def result(heads: headspan.Heads) -> headspan.Result:
    return headspan.similarity(heads, across_layers=False, maps=False)


@pytest.mark.slow
def test_scipy_agrees_on_every_distance_within_a_layer(heads: headspan.Heads, result: headspan.Result) -> None:
    for place, layer in enumerate(heads.layers):
        block = heads.layer(layer, ("Q", "K"))
        both = np.concatenate([block.W_Q[0].double().numpy(), block.W_K[0].double().numpy()], axis=-1)
        found = result.grid()["layer_distance"].values[place]
        for i in range(12):
            for j in range(i + 1, 12):
                angles = scipy.linalg.subspace_angles(both[i], both[j])
                assert found[i, j] == found[j, i] == pytest.approx(np.sqrt((angles**2).sum()), abs=1e-8)


def test_random_spaces_of_this_shape_are_13_82_apart(result: headspan.Result) -> None:
    null = result["layer_distance_null"].values
    assert np.nanmin(null) == np.nanmax(null) == pytest.approx(13.82, abs=0.005)


def test_every_number_is_finite(result: headspan.Result) -> None:
    for name, values in result.dataset().data_vars.items():
        found = values.values[np.isnan(values.values)] if values.dtype.kind == "f" else []
        diagonals = 144 if name in ("layer_distance_null", "layer_distance_z") else 0
        assert len(found) == diagonals, name


def test_all_heads_have_full_rank_and_share_640_null_dimensions(result: headspan.Result) -> None:
    assert not result["deficient"].any()
    assert (result["shared_null_dimension"] == 640).all()
    assert (result["null_change"] < 1e-13).all()


def test_queries_and_keys_overlap_more_than_expected_in_all_heads_but_one(result: headspan.Result) -> None:
    beyond = (result["projection_kernel_q"] < 0.01) & (result["projection_kernel_z"] > 0)
    assert int(beyond.sum()) == 143
    assert not bool(beyond.sel(head="L10H7"))
    rows = result.top(3)
    assert rows["head"].tolist() == ["L0H5", "L0H10", "L0H1"]
    assert rows["score"].iloc[0] == pytest.approx(53.376, abs=1e-3)
    assert int((result["own_key_place"] == 1).sum()) == 97


def test_the_heads_nearest_to_the_null_are_the_two_negative_name_movers(result: headspan.Result) -> None:
    rows = result.table()
    nearest = rows.loc[rows["grassmann_z"].abs().sort_values().index[:2], "head"]
    assert set(nearest) == {"L10H7", "L11H10"}


def test_layer_0_is_the_most_diverse_and_layer_10_the_least(result: headspan.Result) -> None:
    assert int(np.argmax(result["diversity"].values)) == 0
    assert int(np.argmin(result["diversity"].values)) == 10
    assert result["diversity"].values[[0, 10]] == pytest.approx([13.1357, 12.3523], abs=1e-4)
    assert (result["diversity_z"] < -200).all()


def test_the_closest_heads_across_layers_are_induction_heads(gpt2_attention: Path) -> None:
    found = headspan.similarity(headspan.open(gpt2_attention).heads(layers=[5, 6, 7]), maps=False)
    pairs = found.table("closest_pairs").head(4)
    assert {*pairs["closest_src"], *pairs["closest_dst"]} <= INDUCTION
    assert (pairs["closest_src"][0], pairs["closest_dst"][0]) == ("L5H1", "L6H9")
    assert pairs["closest_distance"][0] == pytest.approx(9.0527, abs=1e-4)
    assert float(found["distance"].sel(src="L5H1", dst="L6H9")) == pairs["closest_distance"][0]


def test_grouped_heads_of_a_real_model_have_finite_scores(stories: Path) -> None:
    found = headspan.similarity(stories, maps=False)
    assert np.isfinite(found["grassmann_z"]).all()
    assert int(np.isnan(found["distance_z"]).sum()) == 40
    null = found.grid()["layer_distance_null"].sel(head=0)
    assert (null[:, 1] < null[:, 2]).all()
