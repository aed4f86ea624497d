"""GPT-2's heads as subspaces: scipy's distances, the published chance value, and heads known to be alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import xarray as xr

import headspan
from headspan.lenses import similarity

INDUCTION = {"L5H0", "L5H1", "L5H5", "L6H9", "L7H2", "L7H10"}
"""Induction heads of GPT-2 small: Wang et al. (2023), arXiv 2601.10266."""


@pytest.fixture(scope="module")
def heads(gpt2_attention: Path) -> headspan.Heads:
    return headspan.open(gpt2_attention).heads()


@pytest.fixture(scope="module")
def result(heads: headspan.Heads) -> xr.Dataset:
    return similarity.compute(heads, across_layers=False, maps=False)


def test_scipy_agrees_on_every_distance_within_a_layer(heads: headspan.Heads, result: xr.Dataset) -> None:
    for place, layer in enumerate(heads.layers):
        block = heads.layer(layer, ("Q", "K"))
        both = np.concatenate([block.W_Q[0].double().numpy(), block.W_K[0].double().numpy()], axis=-1)
        found = result["layer_distance"].values[place]
        for i in range(12):
            for j in range(i + 1, 12):
                angles = scipy.linalg.subspace_angles(both[i], both[j])
                assert found[i, j] == found[j, i] == pytest.approx(np.sqrt((angles**2).sum()), abs=1e-8)


def test_random_spaces_of_this_shape_are_13_82_apart(result: xr.Dataset) -> None:
    chance = result["layer_distance_chance"].values
    assert np.nanmin(chance) == np.nanmax(chance) == pytest.approx(13.82, abs=0.005)


def test_every_number_is_finite(result: xr.Dataset) -> None:
    for name, values in result.data_vars.items():
        found = values.values[np.isnan(values.values)] if values.dtype.kind == "f" else []
        diagonals = 144 if name in ("layer_distance_chance", "layer_distance_z") else 0
        assert len(found) == diagonals, name


def test_all_heads_have_full_rank_and_share_640_null_dimensions(result: xr.Dataset) -> None:
    assert not result["deficient"].any()
    assert (result["shared_null_dimension"] == 640).all()
    assert (result["null_change"] < 1e-13).all()


def test_queries_and_keys_overlap_more_than_chance_in_all_heads_but_one(result: xr.Dataset) -> None:
    beyond = (result["q_value"] < 0.01) & (result["projection_kernel_z"] > 0)
    assert int(beyond.sum()) == 143
    assert not bool(beyond.sel(layer=10, head=7))
    rows = similarity.table(result).sort_values("projection_kernel", ascending=False)
    assert rows["label"].tolist()[:3] == ["L0H5", "L0H10", "L0H1"]
    assert rows["projection_kernel"].iloc[0] == pytest.approx(53.376, abs=1e-3)
    assert int((result["own_key_place"] == 1).sum()) == 97


def test_the_heads_nearest_to_chance_are_the_two_negative_name_movers(result: xr.Dataset) -> None:
    rows = similarity.table(result)
    nearest = rows.loc[rows["grassmann_z"].abs().sort_values().index[:2], "label"]
    assert set(nearest) == {"L10H7", "L11H10"}


def test_layer_0_is_the_most_diverse_and_layer_10_the_least(result: xr.Dataset) -> None:
    assert int(np.argmax(result["diversity"].values)) == 0
    assert int(np.argmin(result["diversity"].values)) == 10
    assert result["diversity"].values[[0, 10]] == pytest.approx([13.1357, 12.3523], abs=1e-4)
    assert (result["diversity_z"] < -200).all()


def test_the_closest_heads_across_layers_are_induction_heads(gpt2_attention: Path) -> None:
    found = similarity.compute(headspan.open(gpt2_attention).heads(layers=[5, 6, 7]), maps=False)
    pairs = similarity.closest_pairs(found, 4)
    assert {label for pair in pairs for label in (pair["src"], pair["dst"])} <= INDUCTION
    assert (pairs[0]["src"], pairs[0]["dst"]) == ("L5H1", "L6H9")
    assert pairs[0]["distance"] == pytest.approx(9.0527, abs=1e-4)


def test_grouped_heads_of_a_real_model_have_finite_scores(stories: Path) -> None:
    found = similarity.compute(headspan.open(stories).heads(), maps=False)
    assert np.isfinite(found["grassmann_z"]).all()
    assert int(np.isnan(found["distance_z"]).sum()) == 40
    same = found["layer_distance_chance"].sel(src_head=0, dst_head=1)
    assert (same < found["layer_distance_chance"].sel(src_head=0, dst_head=2)).all()
