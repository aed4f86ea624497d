"""Orthonormal bases: the span, the rank and the zero columns beyond it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError
from headspan.subspaces import Subspace, concatenate, numerical_rank, orthonormal_basis, random_subspaces
from headspan.subspaces.bases import _condition_bound
from headspan.subspaces.rank import clip_rounding, promote, require_finite

METHODS = ("auto", "cholesky", "qr", "svd")


def gaussian(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def with_condition(d: int, p: int, condition: float, dtype: torch.dtype = torch.float64) -> Tensor:
    left, right = torch.linalg.qr(gaussian(d, p)).Q, torch.linalg.qr(gaussian(p, p, seed=1)).Q
    return ((left * torch.logspace(0, -float(np.log10(condition)), p, dtype=torch.float64)) @ right).to(dtype)


def projector(S: Subspace) -> Tensor:
    return S.basis @ S.basis.mT


@pytest.mark.parametrize("method", METHODS)
def test_the_basis_spans_what_scipy_orth_spans(method: str) -> None:
    A = gaussian(3, 20, 6)
    S = orthonormal_basis(A, method=method)
    for member, matrix in zip(S.basis, A, strict=True):
        naive = scipy.linalg.orth(matrix.numpy())
        np.testing.assert_allclose((member @ member.T).numpy(), naive @ naive.T, atol=1e-13)
    assert S.rank.tolist() == [6, 6, 6]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e7, 1e11])
def test_columns_are_orthonormal_to_rounding_however_ill_conditioned(method: str, condition: float) -> None:
    S = orthonormal_basis(with_condition(60, 12, condition), method=method)
    assert int(S.rank) == 12
    torch.testing.assert_close(S.basis.mT @ S.basis, torch.eye(12, dtype=torch.float64), atol=2e-14, rtol=0)


@pytest.mark.parametrize("condition", [1.0, 4.0, 9.0, 11.0, 100.0, 250.0, 1e4])
def test_float32_bases_are_about_as_orthonormal_as_householders(condition: float) -> None:
    A = with_condition(768, 64, condition, torch.float32)
    auto, householder = (orthonormal_basis(A, method=method).basis.double() for method in ("auto", "qr"))
    defect, usual = (float(torch.linalg.matrix_norm(U.mT @ U - torch.eye(64))) for U in (auto, householder))
    assert defect < 3 * usual


@pytest.mark.parametrize("p", [1, 2, 12])
@pytest.mark.parametrize("condition", [1.0, 3.0, 1e3, 1e6])
def test_the_condition_bound_is_never_below_the_condition(p: int, condition: float) -> None:
    A = with_condition(30, p, condition)
    A[:, 0] *= 5
    sigma, R = torch.linalg.svdvals(A), torch.linalg.qr(A).R
    bound = float(_condition_bound(R, torch.linalg.inv(R)))
    assert bound >= float(sigma[0] / sigma[-1] + sigma[-1] / sigma[0]) * (1 - 1e-9)


def test_the_condition_bound_is_exact_for_one_large_and_one_small_direction() -> None:
    R = torch.diag(torch.tensor([4.0, 2.0, 2.0, 2.0, 1.0], dtype=torch.float64))
    assert float(_condition_bound(R, R.inverse())) == pytest.approx(4 + 1 / 4)


@pytest.mark.parametrize("method", METHODS)
def test_rank_deficient_members_keep_their_true_dimension(method: str) -> None:
    A = gaussian(4, 10, 5)
    A[1, :, 4] = A[1, :, 0] + A[1, :, 1]
    A[2] = 0
    A[3, :, 1:] = A[3, :, :1] * gaussian(4)
    S = orthonormal_basis(A, method=method)
    assert S.rank.tolist() == [5, 4, 0, 1]
    assert S.is_full.tolist() == [True, False, False, False]
    for member in range(4):
        assert bool((S.basis[member, :, int(S.rank[member]) :] == 0).all())
        torch.testing.assert_close(projector(S[member]) @ A[member], A[member], atol=1e-13, rtol=0)
    torch.testing.assert_close(projector(S).diagonal(dim1=-2, dim2=-1).sum(-1).round(), S.rank.double())


def test_the_tolerance_decides_the_rank() -> None:
    A = torch.diag(torch.tensor([1.0, 1e-3, 1e-6], dtype=torch.float64))
    ranks = [int(orthonormal_basis(A, tolerance=t).rank) for t in (1e-8, 1e-4, 1e-2)]
    assert ranks == [3, 2, 1]
    assert [int(numerical_rank(A, t)) for t in (1e-8, 1e-4, 1e-2)] == ranks


def test_numerical_rank_agrees_with_numpy() -> None:
    A = gaussian(5, 8, 3) @ gaussian(5, 3, 6, seed=1)
    assert numerical_rank(A).tolist() == np.linalg.matrix_rank(A.numpy()).tolist() == [3] * 5


def test_wide_matrices_have_at_most_the_ambient_dimension() -> None:
    S = orthonormal_basis(gaussian(2, 4, 9))
    assert S.basis.shape == (2, 4, 4)
    assert S.rank.tolist() == [4, 4]


def test_a_square_head_spans_everything() -> None:
    torch.testing.assert_close(projector(orthonormal_basis(gaussian(7, 7))), torch.eye(7, dtype=torch.float64))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("method", METHODS)
def test_scale_does_not_overflow_or_underflow(method: str, scale: float) -> None:
    A = gaussian(12, 4, dtype=torch.float32)
    S, T = (orthonormal_basis(x, method=method) for x in (A, A * scale))
    torch.testing.assert_close(projector(S), projector(T), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(0, 8, 3), (2, 0, 8, 3), (3, 8, 0)])
def test_no_heads_or_no_columns_is_no_error(shape: tuple[int, ...]) -> None:
    S = orthonormal_basis(torch.zeros(shape))
    assert S.basis.shape == shape
    assert not bool(S.rank.any())


def test_batch_axes_lead_and_stay() -> None:
    A = gaussian(2, 3, 9, 4)
    S = orthonormal_basis(A)
    torch.testing.assert_close(projector(S)[1, 2], projector(orthonormal_basis(A[1, 2])))
    assert S.reshape(-1).batch_shape == (6,)


def test_many_heads_are_done_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    A = gaussian(7, 9, 4)
    whole = orthonormal_basis(A)
    monkeypatch.setattr("headspan.subspaces.bases._BLOCK_ENTRIES", 2 * 36)
    torch.testing.assert_close(orthonormal_basis(A).basis, whole.basis)


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_is_promoted_and_the_rest_stays(dtype: torch.dtype, kept: torch.dtype) -> None:
    assert orthonormal_basis(gaussian(8, 3, dtype=dtype)).basis.dtype == kept


def test_float32_bases_differ_from_float64_by_rounding_times_condition() -> None:
    A = with_condition(200, 32, 100.0)
    exact = projector(orthonormal_basis(A))
    single = projector(orthonormal_basis(A.float())).double()
    assert float((single - exact).abs().max()) < 100 * 1.2e-7
    assert float((single - exact).abs().max()) > 1e-9


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_inf_raise(bad: float) -> None:
    A = gaussian(2, 5, 3)
    A[1, 2, 0] = bad
    with pytest.raises(DegenerateSubspace, match=r"shape \(2, 5, 3\) needs finite entries, found 1 NaN or Inf"):
        orthonormal_basis(A)


def test_large_finite_entries_are_not_called_infinite() -> None:
    require_finite(torch.full((10,), 3e38), "tensor")


@pytest.mark.parametrize("tolerance", [-1e-3, 1.0])
def test_a_tolerance_outside_zero_to_one_raises(tolerance: float) -> None:
    with pytest.raises(ArgumentError, match="relative to the largest singular value"):
        orthonormal_basis(gaussian(5, 3), tolerance=tolerance)


def test_integers_raise() -> None:
    with pytest.raises(ShapeError, match=r"needs a real floating dtype, found torch.int64"):
        promote(torch.ones(2, dtype=torch.int64), "matrix")


def test_a_subspace_checks_its_shapes() -> None:
    U = torch.eye(5)[:, :2]
    with pytest.raises(ShapeError, match="one entry per basis"):
        Subspace(U, torch.tensor([2]))
    with pytest.raises(ShapeError, match="between 0 and the 2 columns"):
        Subspace(U, torch.tensor(3))
    with pytest.raises(ShapeError, match="leave the axes"):
        Subspace.from_orthonormal(U.expand(3, 5, 2))[..., 0]


def test_from_orthonormal_believes_only_orthonormal_columns() -> None:
    U = random_subspaces((3,), 20, 4, seed=0).basis
    assert Subspace.from_orthonormal(U).rank.tolist() == [4, 4, 4]
    with pytest.raises(DegenerateSubspace, match="columns need to be orthonormal"):
        Subspace.from_orthonormal(U * 1.001)


def test_concatenated_roles_keep_their_projectors_and_ranks() -> None:
    S, T = random_subspaces((2,), 9, 3, seed=0), random_subspaces((3,), 9, 5, seed=1)
    both = concatenate([S, T])
    assert both.rank.tolist() == [3, 3, 5, 5, 5]
    torch.testing.assert_close(projector(both), torch.cat([projector(S), projector(T)]))


def test_concatenated_needs_one_space_and_one_axis() -> None:
    S = random_subspaces((2,), 9, 3, seed=0)
    with pytest.raises(ShapeError, match="at least one batch"):
        concatenate([])
    with pytest.raises(ShapeError, match="one axis in one R"):
        concatenate([S, random_subspaces((2,), 8, 3, seed=0)])
    with pytest.raises(ShapeError, match=r"use reshape\(-1\)"):
        concatenate([S.reshape(2, 1)])


def test_random_subspaces_are_uniform_in_first_and_second_moment() -> None:
    S = random_subspaces((4000,), 6, 2, seed=3)
    P = projector(S)
    torch.testing.assert_close(P.mean(0), torch.eye(6, dtype=torch.float64) / 3, atol=0.02, rtol=0)
    # E[P_11^2] of a Haar projector: p(p + 2) / (d(d + 2)), the second moment of a Beta(p/2, (d - p)/2).
    assert float((P[:, 0, 0] ** 2).mean()) == pytest.approx(2 * 4 / (6 * 8), abs=0.01)
    assert float(S.basis.mean(0).abs().max()) < 0.03


def test_the_seed_fixes_random_subspaces() -> None:
    first, again, other = (random_subspaces((2,), 6, 2, seed=s).basis for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with pytest.raises(ArgumentError, match="needs 0 <= p <= d"):
        random_subspaces((1,), 3, 4, seed=0)


def test_clipping_touches_rounding_and_nothing_else() -> None:
    x = torch.tensor([-1e-9, 0.5, 1 + 1e-9, torch.nan], dtype=torch.float64)
    clipped = clip_rounding(x, 0.0, 1.0, 1e-8, "cosine")
    torch.testing.assert_close(
        clipped, torch.tensor([0, 0.5, 1, torch.nan], dtype=torch.float64), equal_nan=True, atol=0, rtol=0
    )
    with pytest.raises(
        DegenerateSubspace, match=r"cosine must stay in its range up to rounding, found one 0\.01 outside"
    ):
        clip_rounding(torch.tensor([1.01], dtype=torch.float64), 0.0, 1.0, 1e-8, "cosine")
