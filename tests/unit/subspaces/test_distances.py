"""Distances from angles: definitions by projectors and rotations, unequal dimensions, chance, golden values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.subspaces import (
    angle_null,
    binet_cauchy_distance,
    chordal_distance,
    fubini_study_distance,
    grassmann_distance,
    principal_angles,
    procrustes_distance,
    projection_distance,
    projection_kernel,
    random_principal_angles,
    random_subspaces,
    spectral_distance,
)

DISTANCES = {
    "grassmann": grassmann_distance,
    "chordal": chordal_distance,
    "projection": projection_distance,
    "fubini_study": fubini_study_distance,
    "binet_cauchy": binet_cauchy_distance,
    "spectral": spectral_distance,
    "procrustes": procrustes_distance,
}
LARGEST = {
    "grassmann": math.sqrt(3) * math.pi / 2,
    "chordal": math.sqrt(3),
    "projection": math.sqrt(6),
    "fubini_study": math.pi / 2,
    "binet_cauchy": 1.0,
    "spectral": math.sqrt(2),
    "procrustes": math.sqrt(6),
}


@pytest.fixture
def pair() -> tuple[Tensor, Tensor, Tensor]:
    S, T = random_subspaces((), 10, 3, seed=0), random_subspaces((), 10, 3, seed=1)
    return S.basis, T.basis, principal_angles(S, T)


def test_chordal_and_projection_distances_are_norms_of_projector_differences(pair: tuple[Tensor, ...]) -> None:
    U, V, theta = pair
    difference = U @ U.T - V @ V.T
    torch.testing.assert_close(chordal_distance(theta), torch.linalg.matrix_norm(difference) / math.sqrt(2))
    torch.testing.assert_close(projection_distance(theta), torch.linalg.matrix_norm(difference))
    torch.testing.assert_close(projection_distance(theta, norm="2"), torch.linalg.matrix_norm(difference, 2))


def test_procrustes_and_spectral_distances_are_norms_after_the_best_rotation(pair: tuple[Tensor, ...]) -> None:
    U, V, theta = pair
    A, _, Bh = torch.linalg.svd(U.T @ V)
    best = U @ A - V @ Bh.T
    torch.testing.assert_close(procrustes_distance(theta), torch.linalg.matrix_norm(best))
    torch.testing.assert_close(spectral_distance(theta), torch.linalg.matrix_norm(best, 2))


def test_fubini_study_and_binet_cauchy_are_the_angle_of_the_volume_forms(pair: tuple[Tensor, ...]) -> None:
    U, V, theta = pair
    volume = torch.linalg.det(U.T @ V).abs()
    torch.testing.assert_close(fubini_study_distance(theta), torch.acos(volume))
    torch.testing.assert_close(binet_cauchy_distance(theta), torch.sqrt(1 - volume**2))


def test_the_grassmann_distance_is_the_length_of_the_angle_vector(pair: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(grassmann_distance(pair[2]), torch.linalg.vector_norm(pair[2]))


@pytest.mark.parametrize("name", DISTANCES)
def test_a_distance_is_zero_for_equal_and_largest_for_orthogonal_subspaces(name: str) -> None:
    zero, right = torch.zeros(3, dtype=torch.float64), torch.full((3,), math.pi / 2, dtype=torch.float64)
    assert float(DISTANCES[name](zero)) == 0
    assert float(DISTANCES[name](right)) == pytest.approx(LARGEST[name], rel=1e-14)


@pytest.mark.parametrize("name", DISTANCES)
def test_nearly_equal_subspaces_keep_their_digits(name: str) -> None:
    theta = torch.tensor([3e-9, 4e-9], dtype=torch.float64)
    expected = {"projection": math.sqrt(2) * 5e-9, "spectral": 4e-9}.get(name, 5e-9)
    assert float(DISTANCES[name](theta)) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("name", DISTANCES)
def test_places_beyond_the_rank_do_not_count_and_rank_zero_has_no_distance(name: str) -> None:
    theta = torch.tensor([[0.2, 0.7, torch.nan], [torch.nan] * 3], dtype=torch.float64)
    short = DISTANCES[name](theta[0, :2])
    torch.testing.assert_close(DISTANCES[name](theta)[0], short)
    assert bool(DISTANCES[name](theta)[1].isnan())
    assert bool(DISTANCES[name](torch.zeros(0)).isnan())
    assert DISTANCES[name](torch.zeros(0, 3)).shape == (0,)


def test_a_line_in_a_plane_has_distance_zero() -> None:
    plane = random_subspaces((), 5, 2, seed=0)
    line = type(plane)(plane.basis[:, :1], plane.rank - 1)
    for distance in DISTANCES.values():
        assert float(distance(principal_angles(line, plane))) < 1e-7


def test_chordal_distance_and_projection_kernel_add_up_to_the_dimension() -> None:
    S, T = random_subspaces((3,), 12, 4, seed=0), random_subspaces((3,), 12, 4, seed=1)
    squared = chordal_distance(principal_angles(S, T)) ** 2
    torch.testing.assert_close(squared, 4 - projection_kernel(S, T).diagonal())


def test_chordal_distance_by_chance_is_k_minus_pq_over_d() -> None:
    theta = random_principal_angles(40, 4, 6, draws=20000)
    assert float((chordal_distance(theta) ** 2).mean()) == pytest.approx(4 - 4 * 6 / 40, rel=2e-3)
    assert float((projection_distance(theta) ** 2).mean()) == pytest.approx(2 * (4 - 4 * 6 / 40), rel=2e-3)


def test_random_128_dimensional_subspaces_of_gpt2_lie_13_82_apart() -> None:
    """Golden: shared/reference/affinity.md, Grassmann distance of random 128-dimensional spaces in R^768."""
    chance = angle_null(768, 128, 128, draws=48, seed=1)
    assert chance.grassmann_mean == pytest.approx(13.82, abs=0.01)
    direct = grassmann_distance(
        principal_angles(random_subspaces((2,), 768, 128, 0), random_subspaces((2,), 768, 128, 1))
    )
    torch.testing.assert_close(direct, torch.full((2,), 13.82, dtype=torch.float64), atol=0.1, rtol=0)


def test_most_distances_saturate_by_chance() -> None:
    theta = random_principal_angles(768, 64, 64, draws=4)
    for name in ("fubini_study", "binet_cauchy"):
        torch.testing.assert_close(DISTANCES[name](theta), torch.full((4,), LARGEST[name], dtype=torch.float64))
    assert float(projection_distance(theta, norm="2").min()) > 0.999
    assert float(spectral_distance(theta).min()) > 1.40
    assert float(procrustes_distance(theta).mean()) == pytest.approx(math.sqrt(128), rel=0.15)


def test_float32_distances_are_right_to_float32() -> None:
    theta = random_principal_angles(100, 8, 8, draws=20)
    for distance in DISTANCES.values():
        single, double = distance(theta.float()), distance(theta)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), double, rtol=2e-6, atol=0)


def test_degrees_are_refused() -> None:
    with pytest.raises(ArgumentError, match="degrees must be converted"):
        grassmann_distance(torch.tensor([30.0]))
    with pytest.raises(ArgumentError, match=r"in \[0, pi/2\] radians"):
        chordal_distance(torch.tensor([-0.1]))


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'fro' or '2'"):
        projection_distance.__wrapped__(
            torch.tensor([0.1]), norm="max"
        )  # past the annotation, which already forbids it
