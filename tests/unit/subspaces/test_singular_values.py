"""Singular values through Gram matrices: against an SVD, at every shape, and where a Gram matrix does not suffice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headspan.errors import DegenerateSubspace, ShapeError
from headspan.subspaces import product_singular_values, singular_values, symmetric_eigenvalues


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graded(k: int, condition: float) -> torch.Tensor:
    U, V = (torch.linalg.qr(normal(k, k, seed=seed)).Q for seed in (1, 2))
    return U * torch.logspace(0, -np.log10(condition), k, dtype=torch.float64) @ V


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (1, 9), (2, 3, 20, 30), (300, 260), (2, 260, 300), (0, 4, 4)])
def test_they_are_those_of_an_svd(shape: tuple[int, ...]) -> None:
    A = normal(*shape)
    np.testing.assert_allclose(singular_values(A), torch.linalg.svdvals(A), rtol=1e-9)


@pytest.mark.parametrize("k", [40, 260])
@pytest.mark.parametrize(("condition", "error"), [(1e3, 1e-9), (9e5, 1e-4), (1e8, 1e-6)])
def test_small_values_keep_their_digits(k: int, condition: float, error: float) -> None:
    """1e8 is beyond what a Gram matrix can tell: without the way through QR its smallest value would be lost."""
    A = graded(k, condition)
    np.testing.assert_allclose(singular_values(A), torch.linalg.svdvals(A), rtol=error)


@pytest.mark.parametrize("k", [12, 256])
def test_a_constant_matrix_has_one_value_and_a_zero_matrix_none(k: int) -> None:
    constant = singular_values(torch.full((k, k + 3), 2.0))
    assert float(constant[0]) == pytest.approx(2 * np.sqrt(k * (k + 3)))
    assert (constant[1:] < 1e-12 * constant[0]).all()
    assert (singular_values(torch.zeros(k, k)) == 0).all()


@pytest.mark.parametrize("k", [6, 256])
def test_blocks_of_rows_do_not_matter(k: int) -> None:
    A = normal(5 * k + 3, k)
    A[:, -1] = A[:, 0]  # singular, so that the blocked QR is taken as well
    np.testing.assert_allclose(singular_values(A, memory=1)[:-1], torch.linalg.svdvals(A)[:-1], rtol=1e-8)
    np.testing.assert_allclose(singular_values(A[:, 1:], memory=1), torch.linalg.svdvals(A[:, 1:]), rtol=1e-8)


def test_half_precision_is_promoted_and_what_is_no_matrix_refused() -> None:
    A = normal(8, 6).half()
    np.testing.assert_allclose(singular_values(A), torch.linalg.svdvals(A.double()), rtol=1e-9)
    with pytest.raises(ShapeError, match="m, n >= 1, found shape"):
        singular_values(torch.ones(0, 3))
    with pytest.raises(DegenerateSubspace, match="needs finite entries, found 1 NaN or Inf"):
        singular_values(torch.tensor([[1.0, float("nan")], [0.0, 1.0]]))


@pytest.mark.parametrize(("m", "n", "r"), [(20, 30, 5), (5, 30, 9), (30, 5, 9)])
def test_products_have_the_values_of_the_formed_matrix(m: int, n: int, r: int) -> None:
    A, B = normal(3, m, r), normal(3, n, r, seed=1)
    A[1] = 0
    B[2, :, -1] = B[2, :, 0]
    expected = torch.linalg.svdvals(A @ B.mT)[:, : min(m, n, r)]
    np.testing.assert_allclose(product_singular_values(A, B), expected, rtol=1e-7, atol=1e-12)
    with pytest.raises(ShapeError, match=r"a product A B\^T needs"):
        product_singular_values(A, B[..., :-1])


@pytest.mark.parametrize(("d", "r"), [(20, 5), (6, 5)])
def test_the_symmetric_part_has_the_eigenvalues_of_the_formed_matrix(d: int, r: int) -> None:
    A, B = normal(3, d, r), normal(3, d, r, seed=1)
    B[1] = A[1]
    W = A @ B.mT
    expected = torch.linalg.eigvalsh((W + W.mT) / 2)
    found = symmetric_eigenvalues(A, B)
    np.testing.assert_allclose(found.sum(-1), W.diagonal(dim1=-2, dim2=-1).sum(-1), atol=1e-9)
    for some, others in zip(found, expected, strict=True):
        some, others = some[some.abs() > 1e-6], others[others.abs() > 1e-6]
        np.testing.assert_allclose(some, others, atol=1e-8)
