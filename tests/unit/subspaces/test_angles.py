"""Principal angles at both ends, with every kind of dimension; and the angles of null spaces."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from headspan.errors import ArgumentError, DegenerateSubspace, MemoryBudgetError, ShapeError
from headspan.subspaces import (
    Subspace,
    complement,
    intersection,
    null_space_angles,
    orthonormal_basis,
    pairwise_principal_angles,
    principal_angles,
    principal_cosines,
    principal_sines,
    random_principal_angles,
    random_subspaces,
    shared_null_dimension,
)


def tilted(angles: list[float], d: int, seed: int = 0) -> tuple[Subspace, Subspace]:
    """Two subspaces of R^d with just these angles, in bases that know nothing of each other."""
    k = len(angles)
    theta = torch.tensor(angles, dtype=torch.float64)
    frame = random_subspaces((), d, 2 * k, seed=seed).basis
    U, V = frame[:, :k], frame[:, :k] * theta.cos() + frame[:, k:] * theta.sin()
    turn = random_subspaces((2,), k, k, seed=seed + 1).basis
    return Subspace.from_orthonormal(U @ turn[0]), Subspace.from_orthonormal(V @ turn[1])


@pytest.mark.parametrize("seed", range(5))
def test_an_angle_of_1e_9_is_right_to_a_millionth(seed: int) -> None:
    small = principal_angles(*tilted([1e-9, 0.3, 1.2], 40, seed))
    assert float(small[0]) == pytest.approx(1e-9, rel=1e-6)
    torch.testing.assert_close(small[1:], torch.tensor([0.3, 1.2], dtype=torch.float64), atol=1e-14, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_to_a_right_angle_of_1e_9_is_right_to_a_millionth(seed: int) -> None:
    S, T = tilted([0.3, 1.2, math.pi / 2 - 1e-9], 40, seed)
    assert math.pi / 2 - float(principal_angles(S, T)[-1]) == pytest.approx(1e-9, rel=1e-6)
    assert float(principal_cosines(S, T)[-1]) == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize(("p", "q", "d"), [(3, 3, 10), (2, 5, 10), (5, 2, 10), (6, 7, 10), (4, 10, 10), (1, 1, 2)])
def test_angles_agree_with_scipy(p: int, q: int, d: int) -> None:
    S, T = random_subspaces((6,), d, p, seed=0), random_subspaces((6,), d, q, seed=1)
    ours = principal_angles(S, T)
    forced = max(0, p + q - d)
    assert not forced or float(ours[:, :forced].max()) < 1e-14
    for member in range(6):
        naive = scipy.linalg.subspace_angles(S.basis[member].numpy(), T.basis[member].numpy())[::-1]
        # scipy gives 1.5e-8 for some angles that are 0, the arc cosine of 1 - eps; ours are held to rounding.
        np.testing.assert_allclose(naive[:forced], 0, atol=1e-7)
        np.testing.assert_allclose(ours[member, forced:].numpy(), naive[forced:], atol=1e-13)


def test_sines_and_cosines_belong_to_the_same_angles() -> None:
    S, T = random_subspaces((4,), 12, 3, seed=0), random_subspaces((4,), 12, 6, seed=1)
    theta = principal_angles(S, T)
    torch.testing.assert_close(principal_sines(S, T), theta.sin())
    torch.testing.assert_close(principal_cosines(S, T), theta.cos())


def test_equal_subspaces_have_angle_zero_and_orthogonal_ones_a_right_angle() -> None:
    S = random_subspaces((3,), 64, 8, seed=0)
    turned = Subspace(S.basis @ random_subspaces((3,), 8, 8, seed=1).basis, S.rank)
    assert float(principal_angles(S, turned).max()) < 1e-14
    rest = complement(S)
    torch.testing.assert_close(principal_angles(S, rest), torch.full((3, 8), math.pi / 2, dtype=torch.float64))


def test_a_right_angle_of_45_degrees() -> None:
    line = orthonormal_basis(torch.tensor([[1.0], [1.0]], dtype=torch.float64))
    axis = orthonormal_basis(torch.tensor([[1.0], [0.0]], dtype=torch.float64))
    assert float(principal_angles(line, axis)) == pytest.approx(math.pi / 4, abs=1e-15)


def test_angles_beyond_the_smaller_rank_are_nan() -> None:
    A = torch.randn(3, 9, 4, dtype=torch.float64)
    A[1, :, 3] = A[1, :, 0]
    A[2] = 0
    S, T = orthonormal_basis(A), random_subspaces((3,), 9, 4, seed=1)
    for theta in (principal_angles(S, T), principal_angles(T, S)):
        assert theta.isnan().sum(-1).tolist() == [0, 1, 4]
        naive = scipy.linalg.subspace_angles(A[1, :, :3].numpy(), T.basis[1].numpy())[::-1]
        np.testing.assert_allclose(theta[1, :3].numpy(), naive, atol=1e-13)


def test_a_rank_deficient_member_does_not_fake_small_angles() -> None:
    axes = torch.eye(8, dtype=torch.float64)
    thin = orthonormal_basis(torch.stack([axes[0], axes[0], axes[0]], -1))
    assert int(thin.rank) == 1
    near = orthonormal_basis(torch.stack([axes[0] + 1e-3 * axes[1], axes[2], axes[3]], -1))
    for theta in (principal_angles(thin, near), principal_angles(near, thin)):
        assert float(theta[0]) == pytest.approx(math.atan(1e-3), rel=1e-9)
        assert theta.isnan().tolist() == [False, True, True]


def test_mixed_ranks_in_one_batch_take_the_right_sines() -> None:
    axes = torch.eye(8, dtype=torch.float64)
    wide = torch.stack([axes[:, :3], torch.stack([axes[0], axes[0], axes[0]], -1)])
    other = torch.stack([torch.stack([axes[0] + axes[5] * 1e-4, axes[6] * 0, axes[7] * 0], -1), axes[:, :3]])
    theta = principal_angles(orthonormal_basis(wide), orthonormal_basis(other))
    torch.testing.assert_close(
        theta[:, 0], torch.tensor([math.atan(1e-4), 0.0], dtype=torch.float64), atol=1e-15, rtol=0
    )


def test_pairwise_angles_are_the_angles_of_the_pairs_for_any_budget() -> None:
    S, T = random_subspaces((5,), 20, 3, seed=0), random_subspaces((4,), 20, 6, seed=1)
    T = Subspace(torch.cat([T.basis[:3], torch.nn.functional.pad(S.basis[:1], (0, 3))]), torch.tensor([6, 6, 6, 3]))
    whole = pairwise_principal_angles(S, T)
    for i in range(5):
        for j in range(4):
            torch.testing.assert_close(whole[i, j], principal_angles(S[i], T[j]))
    assert float(whole[0, 3].max()) < 1e-14
    torch.testing.assert_close(pairwise_principal_angles(S, T, memory=6000), whole)
    with pytest.raises(MemoryBudgetError, match="one pair of bases needs"):
        pairwise_principal_angles(S, T, memory=100)


def test_no_heads_have_no_angles() -> None:
    none, some = orthonormal_basis(torch.zeros(0, 8, 3)), random_subspaces((2,), 8, 3, seed=0, dtype=torch.float32)
    assert pairwise_principal_angles(none, some).shape == (0, 2, 3)
    assert principal_angles(none, none).shape == (0, 3)


@pytest.mark.parametrize(("p", "q", "d"), [(4, 4, 24), (3, 8, 12), (7, 8, 12)])
def test_angles_by_chance_are_those_of_the_jacobi_draws(p: int, q: int, d: int) -> None:
    drawn = random_principal_angles(d, p, q, draws=20000, seed=0)
    direct = principal_angles(random_subspaces((4000,), d, p, seed=1), random_subspaces((4000,), d, q, seed=2))
    torch.testing.assert_close(direct.mean(0), drawn.mean(0), atol=0.015, rtol=0)
    torch.testing.assert_close(direct.std(0), drawn.std(0), atol=0.015, rtol=0)


def test_float32_angles_are_right_to_float32_at_both_ends() -> None:
    angles = [1e-3, 0.5, 1.0, math.pi / 2 - 1e-3]
    S, T = tilted(angles, 100)
    single = principal_angles(S.to(dtype=torch.float32), T.to(dtype=torch.float32))
    assert single.dtype == torch.float32
    error = (single.double() - torch.tensor(angles, dtype=torch.float64)).abs()
    assert float(error.max()) < 2e-6
    assert float(error.max()) > 0


def test_bases_that_are_not_orthonormal_are_found_out() -> None:
    S = random_subspaces((), 10, 2, seed=0)
    with pytest.raises(DegenerateSubspace, match="cosine of a principal angle must stay in its range"):
        principal_angles(Subspace(S.basis * 1.01, S.rank), S)


def test_different_spaces_have_no_angles() -> None:
    with pytest.raises(ShapeError, match=r"R\^6 and R\^7"):
        principal_angles(random_subspaces((), 6, 2, seed=0), random_subspaces((), 7, 2, seed=0))


def naive_angles(S: Subspace, T: Subspace) -> Tensor:
    return principal_angles(S, T)


@pytest.mark.parametrize(
    ("p", "q", "d"),
    [(3, 3, 12), (2, 5, 12), (5, 2, 12), (6, 6, 12), (8, 7, 12), (12, 5, 12), (5, 12, 12), (12, 12, 12)],
)
def test_null_space_angles_are_those_of_explicit_null_spaces(p: int, q: int, d: int) -> None:
    S, T = random_subspaces((3,), d, p, seed=0), random_subspaces((3,), d, q, seed=1)
    derived = null_space_angles(principal_angles(S, T), d, p, q)
    for ours, pair in (
        (derived.null_null, (complement(S), complement(T))),
        (derived.row_null, (S, complement(T))),
        (derived.null_row, (complement(S), T)),
    ):
        torch.testing.assert_close(ours, naive_angles(*pair), atol=1e-13, rtol=0)


def test_null_space_angles_count_exact_zeros_and_shared_directions() -> None:
    axes = torch.eye(9, dtype=torch.float64)
    S, T = orthonormal_basis(axes[:, :4]), orthonormal_basis(axes[:, 2:5])
    theta = principal_angles(S, T)
    assert int(shared_null_dimension(theta, 9, 4, 3)) == 4 == int(intersection(complement(S), complement(T)).rank)
    derived = null_space_angles(theta, 9, 4, 3)
    torch.testing.assert_close(derived.null_null, naive_angles(complement(S), complement(T)), atol=1e-14, rtol=0)
    torch.testing.assert_close(derived.row_null, naive_angles(S, complement(T)), atol=1e-14, rtol=0)
    torch.testing.assert_close(derived.null_row, naive_angles(complement(S), T), atol=1e-14, rtol=0)


def test_gpt2_null_spaces_share_640_dimensions_by_chance() -> None:
    """Golden: rows of 64 + 64 dimensions in R^768 leave 640 (Rizzi 2025, Null space of the attention mechanism)."""
    theta = random_principal_angles(768, 64, 64, draws=2)
    derived = null_space_angles(theta, 768, 64, 64)
    assert shared_null_dimension(theta, 768, 64, 64).tolist() == [640, 640]
    assert (derived.null_null == 0).sum(-1).tolist() == [640, 640]
    assert derived.null_null.shape[-1] == 704


@pytest.mark.parametrize(("p", "q"), [(8, 7), (3, 3)])
def test_the_shared_null_dimension_by_chance_is_what_counting_gives(p: int, q: int) -> None:
    S, T = random_subspaces((3,), 12, p, seed=0), random_subspaces((3,), 12, q, seed=1)
    for tolerance in (0.0, 1e-9):
        shared = shared_null_dimension(principal_angles(S, T), 12, p, q, tolerance)
        assert shared.tolist() == [max(0, 12 - p - q)] * 3


def test_null_space_angles_want_the_true_dimensions() -> None:
    theta = torch.tensor([0.1, 0.2])
    with pytest.raises(ArgumentError, match=r"need to be in \[0, d=4\]"):
        null_space_angles(theta, 4, 5, 2)
    with pytest.raises(ShapeError, match=r"p=3 and q=3 need min\(p, q\) angles, found 2"):
        null_space_angles(theta, 9, 3, 3)
    with pytest.raises(DegenerateSubspace, match="group the members by rank"):
        shared_null_dimension(torch.tensor([0.1, torch.nan]), 9, 2, 3)
