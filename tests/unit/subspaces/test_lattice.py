"""Complements, sums, intersections, projections."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from headspan.errors import DegenerateSubspace, ShapeError
from headspan.subspaces import (
    Subspace,
    complement,
    intersection,
    null_space,
    orthonormal_basis,
    project,
    random_subspaces,
    subspace_sum,
)

EYE = torch.eye(6, dtype=torch.float64)


def coordinates(*axes: int) -> Subspace:
    return orthonormal_basis(EYE[:, list(axes)])


def projector(S: Subspace) -> torch.Tensor:
    return S.basis @ S.basis.mT


def test_the_null_space_is_what_scipy_finds_and_is_not_seen() -> None:
    A = torch.randn(3, 12, 4, dtype=torch.float64)
    N = null_space(A)
    assert N.basis.shape == (3, 12, 8)
    assert float((N.basis.mT @ A).abs().max()) < 1e-13
    for member, matrix in zip(projector(N), A, strict=True):
        naive = scipy.linalg.null_space(matrix.numpy().T)
        np.testing.assert_allclose(member.numpy(), naive @ naive.T, atol=1e-13)


@pytest.mark.parametrize("p", [0, 1, 6])
def test_a_subspace_and_its_complement_make_the_whole_space(p: int) -> None:
    S = random_subspaces((2,), 6, p, seed=0)
    torch.testing.assert_close(projector(S) + projector(complement(S)), EYE.expand(2, 6, 6))


def test_complements_of_unequal_ranks_must_be_looped_over() -> None:
    A = torch.randn(2, 6, 3, dtype=torch.float64)
    A[1, :, 2] = 0
    with pytest.raises(DegenerateSubspace, match=r"one rank for the whole batch, found ranks \[2, 3\]; loop over"):
        null_space(A)
    assert null_space(A[1]).basis.shape == (6, 4)


def test_complement_of_no_heads_is_no_heads() -> None:
    assert complement(orthonormal_basis(torch.zeros(0, 6, 2))).basis.shape == (0, 6, 4)


def test_sum_and_intersection_of_coordinate_spaces() -> None:
    S, T = coordinates(0, 1, 2), coordinates(2, 3)
    torch.testing.assert_close(projector(subspace_sum(S, T)), torch.diag(torch.tensor([1.0, 1, 1, 1, 0, 0])).double())
    torch.testing.assert_close(projector(intersection(S, T)), torch.diag(torch.tensor([0.0, 0, 1, 0, 0, 0])).double())
    assert (int(subspace_sum(S, T).rank), int(intersection(S, T).rank)) == (4, 1)


@pytest.mark.parametrize(("p", "q"), [(2, 3), (5, 4), (6, 2), (3, 3)])
def test_by_chance_subspaces_meet_only_where_they_must(p: int, q: int) -> None:
    S, T = random_subspaces((5,), 6, p, seed=0), random_subspaces((5,), 6, q, seed=1)
    assert intersection(S, T).rank.tolist() == [max(0, p + q - 6)] * 5
    assert subspace_sum(S, T).rank.tolist() == [min(6, p + q)] * 5


def test_the_intersection_tolerance_is_an_angle() -> None:
    tilted = orthonormal_basis(torch.stack([EYE[0], torch.cos(torch.tensor(1e-6)) * EYE[1] + 1e-6 * EYE[2]], -1))
    plane = coordinates(0, 1)
    assert [int(intersection(plane, tilted, t).rank) for t in (1e-5, 1e-7)] == [2, 1]
    assert int(intersection(plane, tilted).rank) == 1


def test_zero_columns_are_not_mistaken_for_shared_directions() -> None:
    A = torch.zeros(6, 3, dtype=torch.float64)
    A[0, 0] = 1
    line = orthonormal_basis(A)
    assert int(line.rank) == 1
    assert int(intersection(line, coordinates(0, 1, 2, 3)).rank) == 1
    assert int(intersection(coordinates(0, 1, 2, 3), line).rank) == 1
    assert int(intersection(line, coordinates(2, 3, 4, 5)).rank) == 0
    assert int(intersection(orthonormal_basis(A * 0), line).rank) == 0


def test_the_shared_part_is_all_of_two_equal_subspaces() -> None:
    S = random_subspaces((4,), 50, 7, seed=0)
    rotated = Subspace(S.basis @ random_subspaces((4,), 7, 7, seed=1).basis, S.rank)
    shared = intersection(S, rotated)
    assert shared.rank.tolist() == [7] * 4
    torch.testing.assert_close(projector(shared), projector(S))


def test_projection_is_the_nearest_point_and_keeps_p_over_d_of_the_length() -> None:
    S = random_subspaces((), 40, 10, seed=0)
    x = torch.randn(5000, 40, dtype=torch.float64)
    image = project(x, S)
    torch.testing.assert_close(image, x @ projector(S))
    torch.testing.assert_close(project(image, S), image)
    assert float(((x - image) @ S.basis).abs().max()) < 1e-13
    assert float((image**2).sum() / (x**2).sum()) == pytest.approx(10 / 40, abs=0.01)
    torch.testing.assert_close(project(x[0], S), image[0])


def test_different_spaces_do_not_mix() -> None:
    S, T = random_subspaces((), 6, 2, seed=0), random_subspaces((), 7, 2, seed=0)
    for operation in (subspace_sum, intersection):
        with pytest.raises(ShapeError, match=r"found R\^6 and R\^7"):
            operation(S, T)
    with pytest.raises(ShapeError, match="vectors need 6 entries"):
        project(torch.ones(3, 7), S)
