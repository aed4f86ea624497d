"""Which space stands for a head, which heads belong together, and maps of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import torch

import headspan
from headspan.lenses.similarity.groups import classical_map, clusters, mean_silhouette
from tests.unit.test_similarity import WIDTH, gpt2, quick


@pytest.fixture(scope="module")
def heads() -> headspan.Heads:
    return gpt2()


@pytest.fixture(scope="module")
def result(heads: headspan.Heads) -> headspan.Result:
    return quick(heads, maps=True)


def test_the_leading_space_at_full_rank_is_the_sum(heads: headspan.Heads, result: headspan.Result) -> None:
    np.testing.assert_allclose(quick(heads, space="qk", qk_rank=WIDTH)["distance"], result["distance"], atol=1e-9)


def test_the_leading_space_has_twice_the_rank_asked_for(heads: headspan.Heads) -> None:
    found = quick(heads, space="qk", qk_rank=3)
    assert (found["dimension"] == 6).all()
    U, _, Vh = torch.linalg.svd(heads.W_Q[:, 0].double() @ heads.W_K[:, 0].double().mT)
    leading = torch.cat([U[..., :3], Vh[..., :3, :].mT], dim=-1).numpy()
    expected = np.sqrt((scipy.linalg.subspace_angles(leading[0], leading[1]) ** 2).sum())
    one = found["distance"].sel(src="L0H0", dst="L1H0")
    assert float(one) == pytest.approx(expected, abs=1e-9)


def test_the_intersection_of_random_spaces_is_empty_and_grows_with_the_angle_allowed(heads: headspan.Heads) -> None:
    exact = quick(heads, space="intersection")
    assert (exact["dimension"] == 0).all()
    assert exact["distance"].isnull().all()
    assert not exact["degenerate"].any()
    loose = quick(heads, space="intersection", angle_tolerance=math.radians(60))
    within = (loose["angles_RQ_RK"] <= math.radians(60)).sum("angle")
    assert (loose["dimension"] == within).all()


def test_separate_groups_are_found_and_noise_is_not() -> None:
    points = np.array([0, 0.1, 0.2, 5, 5.1, 5.3, 9, 9.2])
    distance = np.abs(points[:, None] - points)
    flat, sd = np.full((8, 8), 3.0), np.full((8, 8), 0.1)
    found = clusters(distance, flat, sd, seed=0)
    assert found.label.tolist() == [1, 1, 1, 2, 2, 2, 3, 3] or len(set(found.label)) == 3
    assert [len(set(found.label[part])) for part in (slice(0, 3), slice(3, 6), slice(6, 8))] == [1, 1, 1]
    assert found.silhouette > 0.9 > 0.2 > found.silhouette_null
    assert sorted(found.place) == list(range(8))


def test_the_silhouette_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import silhouette_score

    generator = np.random.default_rng(0)
    points = generator.standard_normal((12, 3))
    distance = np.sqrt(((points[:, None] - points) ** 2).sum(-1))
    label = np.array([1, 1, 2, 2, 2, 3, 3, 1, 2, 4, 3, 3])
    assert mean_silhouette(distance, label) == pytest.approx(silhouette_score(distance, label, metric="precomputed"))


def test_classical_scaling_recovers_a_plane() -> None:
    points = np.random.default_rng(0).standard_normal((10, 2))
    distance = np.sqrt(((points[:, None] - points) ** 2).sum(-1))
    found, share = classical_map(distance)
    np.testing.assert_allclose(np.sqrt(((found[:, None] - found) ** 2).sum(-1)), distance, atol=1e-9)
    assert share.sum() == pytest.approx(1)
    equal = classical_map(1.0 - np.eye(10))[1]
    np.testing.assert_allclose(equal, 1 / 9)


def test_the_same_seed_gives_the_same_bytes(heads: headspan.Heads, result: headspan.Result) -> None:
    assert quick(heads, maps=True).dataset().identical(result.dataset())
    assert not quick(heads, seed=1, maps=True)["tsne"].equals(result["tsne"])


def test_sampled_directions_come_from_the_head_that_was_asked_for(heads: headspan.Heads) -> None:
    found = headspan.similarity(heads, head="L1H2", samples=5)
    assert found.attrs["sample_head"] == "L1H2"
    assert found["sample_tsne"].shape == (4, 5, 2)
    assert np.isfinite(found["sample_tsne"]).all()
    assert np.isfinite(found["sample_tsne_null"]).all()


def test_the_chosen_head_is_counted_by_itself(heads: headspan.Heads) -> None:
    found = headspan.similarity(heads, head="L1H2", maps=False)
    angles = np.degrees(found["angles_RQ_RK"].sel(head="L1H2").values)
    expected = np.histogram(angles, np.linspace(0, 90, found.dataset().sizes["bin"] + 1))[0]
    count = found["chosen_angle_count"].sel(combination="RQ_RK")
    np.testing.assert_array_equal(count, expected)
    # Random heads: as many angles as the null has, in about the same places.
    null = found["chosen_angle_count_null"].sel(combination="RQ_RK")
    assert float(null.sum()) == pytest.approx(float(count.sum()))
    assert abs(float((count * count["bin"]).sum() - (null * null["bin"]).sum())) / float(count.sum()) < 8
    assert "Principal angles of one head" in found.figures
    assert "chosen_angle_count" not in headspan.similarity(heads, maps=False)
