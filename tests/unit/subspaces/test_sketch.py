"""Kernels from sketches: mean, variance and lower tail of the estimate."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.subspaces.sketch import gaussian_sketch, kernel_estimate, kernel_standard_error, lowest_plausible

D, P, Q, M = 60, 8, 6, 24
DRAWS = 20_000
COSINES = {
    "unrelated": [0.0] * 6,
    "two common directions": [1.0, 1.0, 0, 0, 0, 0],
    "all common": [1.0] * 6,
    "half common": [0.7] * 6,
    "a mixture": [0.95, 0.6, 0.4, 0.2, 0.1, 0.0],
}


def bases(cosines: list[float]) -> tuple[Tensor, Tensor]:
    """Two orthonormal bases with these cosines between them."""
    c = torch.tensor(cosines, dtype=torch.float64)
    U, V = torch.zeros(D, P, dtype=torch.float64), torch.zeros(D, Q, dtype=torch.float64)
    U[range(P), range(P)] = 1
    V[range(Q), range(Q)] = c
    V[range(P, P + Q), range(Q)] = (1 - c.square()).sqrt()
    return U, V


@cache
def estimates(name: str) -> tuple[Tensor, float]:
    """Estimates over many sketches, and the true kernel."""
    U, V = bases(COSINES[name])
    generator = torch.Generator().manual_seed(3)
    Phi = torch.randn(DRAWS, D, M, generator=generator, dtype=torch.float64)
    X = ((U.mT @ Phi) @ (V.mT @ Phi).mT).square().sum((-2, -1))
    p, q = (torch.full(shape, float(n), dtype=torch.float64) for shape, n in (((DRAWS, 1), P), ((1, 1), Q)))
    return kernel_estimate(X[:, None], p, q, M)[:, 0], float((U.mT @ V).square().sum())


@pytest.mark.parametrize("name", COSINES)
def test_the_estimate_is_unbiased_and_its_error_no_larger_than_stated(name: str) -> None:
    values, kernel = estimates(name)
    bound = float(kernel_standard_error(torch.tensor(kernel, dtype=torch.float64), P, Q, M))
    assert float(values.mean()) == pytest.approx(kernel, abs=4 * bound / DRAWS**0.5)
    assert float(values.std()) <= bound * (1 + 4 / (2 * DRAWS) ** 0.5 * 2)


@pytest.mark.parametrize("name", ["unrelated", "two common directions", "all common"])
def test_the_stated_error_is_exact_where_common_directions_are_common_entirely(name: str) -> None:
    values, kernel = estimates(name)
    bound = float(kernel_standard_error(torch.tensor(kernel, dtype=torch.float64), P, Q, M))
    assert float(values.std()) == pytest.approx(bound, rel=0.03)


def test_unrelated_spaces_have_the_textbook_error() -> None:
    stated = float(kernel_standard_error(torch.zeros((), dtype=torch.float64), P, Q, M))
    assert stated == pytest.approx((2 * P * Q * (M + P + Q + 1) / M**3) ** 0.5 / (1 + 1 / M))


@pytest.mark.parametrize("failure", [0.02, 0.002])
@pytest.mark.parametrize("name", COSINES)
def test_an_estimate_falls_below_what_is_plausible_no_more_often_than_stated(name: str, failure: float) -> None:
    values, kernel = estimates(name)
    missed = float((values < lowest_plausible(kernel, P, Q, M, failure)).double().mean())
    assert missed <= failure + 3 * (failure / DRAWS) ** 0.5


def test_a_sketch_of_one_seed_is_one_sketch() -> None:
    assert torch.equal(gaussian_sketch(5, 3, 1), gaussian_sketch(5, 3, 1))
    assert torch.equal(gaussian_sketch(5, 3, 1, torch.float32), gaussian_sketch(5, 3, 1).float())
    with pytest.raises(ArgumentError, match="at least one row and one column"):
        gaussian_sketch(5, 0, 1)
