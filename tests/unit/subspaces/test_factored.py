"""Factored matrices answer as their dense products do, without forming them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headspan.errors import ShapeError
from headspan.subspaces import Factored

SHAPES = [(9, 7, 3), (5, 5, 5), (4, 6, 8), (1, 1, 1), (8, 8, 2)]


def factored(m: int, n: int, r: int, batch: tuple[int, ...] = (2,), seed: int = 0) -> Factored:
    generator = torch.Generator().manual_seed(seed)
    A, B = (torch.randn(*batch, size, r, generator=generator, dtype=torch.float64) for size in (m, n))
    return Factored(A, B)


@pytest.mark.parametrize(("m", "n", "r"), SHAPES)
def test_norms_and_spectra_are_those_of_the_dense_matrix(m: int, n: int, r: int) -> None:
    M = factored(m, n, r)
    dense = M.to_dense()
    assert M.shape == tuple(dense.shape)
    torch.testing.assert_close(M.frobenius_norm(), torch.linalg.matrix_norm(dense))
    torch.testing.assert_close(M.nuclear_norm(), torch.linalg.matrix_norm(dense, "nuc"))
    k = min(m, n, r)
    torch.testing.assert_close(M.singular_values(), torch.linalg.svdvals(dense)[..., :k])
    U, S, Vh = M.svd()
    torch.testing.assert_close((U * S[..., None, :]) @ Vh, dense)
    eye = torch.eye(k, dtype=torch.float64).expand(2, k, k)
    torch.testing.assert_close(U.mT @ U, eye)
    torch.testing.assert_close(Vh @ Vh.mT, eye)


def sorted_by_size(values: Tensor) -> Tensor:
    return values[torch.argsort(values.abs() + 1e-3 * values.imag, descending=True)]


@pytest.mark.parametrize(("n", "r"), [(8, 2), (5, 5), (6, 3)])
def test_eigenvalues_and_trace_are_those_of_the_dense_matrix(n: int, r: int) -> None:
    M = factored(n, n, r, batch=())
    dense = torch.linalg.eigvals(M.to_dense())
    ours = sorted_by_size(M.eigenvalues())
    assert len(ours) == r
    torch.testing.assert_close(ours, sorted_by_size(dense)[:r], atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(M.trace(), torch.trace(M.to_dense()))
    torch.testing.assert_close(M.eigenvalues().sum().real, M.trace())


def test_surplus_inner_dimensions_have_eigenvalue_zero() -> None:
    values = factored(3, 3, 5, batch=()).eigenvalues().abs().sort().values
    assert float(values[1]) < 1e-13 < float(values[2])


def test_products_stay_factored_with_the_smaller_inner_dimension() -> None:
    M, N = factored(6, 7, 2), factored(7, 5, 3, seed=1)
    product, reverse = M @ N, N.mT @ M.mT
    assert (product.inner, reverse.inner) == (2, 2)
    torch.testing.assert_close(product.to_dense(), M.to_dense() @ N.to_dense())
    torch.testing.assert_close(reverse.to_dense(), product.to_dense().mT)
    X = torch.randn(7, 4, dtype=torch.float64)
    torch.testing.assert_close((M @ X).to_dense(), M.to_dense() @ X)
    torch.testing.assert_close((X.mT @ M.mT).to_dense(), X.mT @ M.to_dense().mT)
    assert isinstance(X.mT @ M.mT, Factored)


def test_zero_factors_have_norm_zero() -> None:
    M = Factored(torch.zeros(4, 2), torch.ones(3, 2))
    assert float(M.frobenius_norm()) == float(M.nuclear_norm()) == 0
    assert Factored(torch.zeros(0, 4, 2), torch.zeros(0, 4, 2)).frobenius_norm().shape == (0,)


def test_cancelling_factors_do_not_make_a_norm_negative_or_noisy() -> None:
    """tr(A^T A B^T B) would lose all digits here: the columns cancel to 1e-9 of their size."""
    A = torch.tensor([[1.0, 1.0], [0.0, 1e-9]], dtype=torch.float64)
    B = torch.tensor([[1.0, -1.0], [0.0, 0.0]], dtype=torch.float64)
    assert float(Factored(A, B).frobenius_norm()) == pytest.approx(1e-9, rel=1e-6)


def test_norms_of_random_circuits_have_their_chance_value() -> None:
    """E ||A B^T||_F^2 = m n r for independent standard normal factors."""
    norms = factored(30, 20, 4, batch=(2000,)).frobenius_norm()
    assert float((norms**2).mean()) == pytest.approx(30 * 20 * 4, rel=0.02)
    traces = factored(20, 20, 4, batch=(2000,)).trace()
    assert abs(float(traces.mean())) < 4 * math.sqrt(20 * 4 / 2000)


def test_a_rank_one_matrix_has_its_textbook_spectrum() -> None:
    """Golden: u v^T with u = (3, 4), v = (1, 0) has singular value 5, eigenvalue v.u = 3, trace 3."""
    M = Factored(torch.tensor([[3.0], [4.0]]), torch.tensor([[1.0], [0.0]]))
    assert float(M.singular_values()) == pytest.approx(5)
    assert float(M.nuclear_norm()) == pytest.approx(5)
    assert complex(M.eigenvalues()) == pytest.approx(3)
    assert float(M.trace()) == 3


def test_float32_norms_are_right_to_float32() -> None:
    M = factored(200, 200, 16)
    single = Factored(M.A.float(), M.B.float())
    torch.testing.assert_close(single.frobenius_norm().double(), M.frobenius_norm(), rtol=1e-6, atol=0)
    torch.testing.assert_close(single.nuclear_norm().double(), M.nuclear_norm(), rtol=1e-6, atol=0)


def test_half_precision_factors_are_promoted() -> None:
    assert Factored(torch.ones(3, 1, dtype=torch.float16), torch.ones(3, 1)).to_dense().dtype == torch.float32


def test_factors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"with one r, found \(3, 2\) and \(3, 1\)"):
        Factored(torch.ones(3, 2), torch.ones(3, 1))
    with pytest.raises(ShapeError, match="one dtype and device"):
        Factored(torch.ones(3, 1), torch.ones(3, 1).double())
    M = Factored(torch.ones(3, 1), torch.ones(4, 1))
    with pytest.raises(ShapeError, match=r"trace needs a square matrix, found shape \(3, 4\)"):
        M.trace()
    with pytest.raises(ShapeError, match="eigenvalues needs a square"):
        M.eigenvalues()
    with pytest.raises(ShapeError, match=r"matching sides, found \(3, 4\) @ \(3, 4\)"):
        M @ M
    with pytest.raises(ShapeError, match=r"matching sides, found \(2, 2\) @ \(3, 4\)"):
        torch.ones(2, 2) @ M
