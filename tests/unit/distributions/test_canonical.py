"""Canonical correlations, mutual information and total correlation: definition, invariance, singular cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cross_decomposition import CCA

from headspan.distributions import canonical_correlations, entropy, mutual_information, total_correlation
from headspan.errors import ArgumentError, ShapeError
from tests.unit.distributions.moments import covariances, flat_covariance, normal, numbers


def parts(S: torch.Tensor, p: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return S[..., :p, :p], S[..., p:, p:], S[..., :p, p:]


def test_information_is_the_sum_of_the_entropies_less_the_joint_one() -> None:
    S = covariances(4, 7, seed=1)
    expected = entropy(S[:, :3, :3]) + entropy(S[:, 3:, 3:]) - entropy(S)
    torch.testing.assert_close(mutual_information(*parts(S, 3)), expected)
    torch.testing.assert_close(total_correlation(S, [3, 4]), expected)
    torch.testing.assert_close(mutual_information(*parts(S, 5)), total_correlation(S, [5, 2]))


def test_information_is_what_canonical_correlations_say() -> None:
    S = covariances(9, seed=2)
    rho = canonical_correlations(*parts(S, 4))
    assert rho.shape == (4,)
    assert float(mutual_information(*parts(S, 4))) == pytest.approx(float(-0.5 * torch.log1p(-(rho**2)).sum()))


def test_correlations_are_those_of_scikit_learn() -> None:
    x = normal(200, 5, seed=3) @ normal(5, 5, seed=4)
    first, second = CCA(n_components=2, tol=1e-10, max_iter=5000).fit_transform(x[:, :2].numpy(), x[:, 2:].numpy())
    theirs = [abs(np.corrcoef(first[:, k], second[:, k])[0, 1]) for k in range(2)]
    np.testing.assert_allclose(canonical_correlations(*parts(torch.cov(x.T), 2)), theirs, atol=1e-5)


@given(st.integers(0, 500))
def test_invertible_maps_leave_information_and_lossy_ones_lower_it(seed: int) -> None:
    S = covariances(6, seed=seed)
    Sxx, Syy, Sxy = parts(S, 3)
    before = float(mutual_information(Sxx, Syy, Sxy))
    L = normal(3, 3, seed=seed + 1) + 3 * torch.eye(3, dtype=torch.float64)
    assert float(mutual_information(L @ Sxx @ L.T, Syy, L @ Sxy)) == pytest.approx(before, rel=1e-6)
    lossy = normal(2, 3, seed=seed + 2)
    assert float(mutual_information(lossy @ Sxx @ lossy.T, Syy, lossy @ Sxy)) <= before + 1e-9


def test_a_map_of_reduced_rank_in_many_dimensions_counts_only_what_varies() -> None:
    """x seen through a 2-dimensional window, written back into R^3: singular, and the same information."""
    S = covariances(6, seed=5)
    Sxx, Syy, Sxy = parts(S, 3)
    window, back = normal(2, 3, seed=6), normal(3, 2, seed=7)
    low = mutual_information(window @ Sxx @ window.T, Syy, window @ Sxy)
    L = back @ window
    assert float(mutual_information(L @ Sxx @ L.T, Syy, L @ Sxy)) == pytest.approx(float(low), rel=1e-8)


def test_what_is_fixed_by_the_other_has_infinite_information() -> None:
    S = covariances(3, seed=8)
    assert float(mutual_information(S, S, S)) == math.inf
    flat = flat_covariance(3, 2)
    assert float(mutual_information(flat, flat, flat)) == math.inf
    assert float(mutual_information(flat, flat, 0.5 * flat)) == pytest.approx(-math.log(0.75))
    assert float(mutual_information(flat, S, torch.zeros(3, 3, dtype=torch.float64))) == 0.0
    assert float(total_correlation(torch.block_diag(flat, S))) == math.inf
    both = torch.cat([torch.cat([flat, 0.5 * flat], 1), torch.cat([0.5 * flat, flat], 1)])
    assert float(total_correlation(both, [3, 3])) == pytest.approx(-math.log(0.75))


def test_nearly_certain_directions_keep_their_digits() -> None:
    rho = 1 - 1e-9
    one, cross = torch.eye(1, dtype=torch.float64), numbers(rho).reshape(1, 1)
    assert float(mutual_information(one, one, cross)) == pytest.approx(-0.5 * math.log(1 - rho**2), rel=1e-6)


def test_independent_vectors_share_no_information() -> None:
    S = torch.block_diag(covariances(3, seed=1), covariances(2, seed=2))
    assert float(mutual_information(*parts(S, 3))) == pytest.approx(0, abs=1e-12)
    assert float(total_correlation(torch.diag(numbers(1, 2, 3)))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: mutual_information(covariances(2), covariances(2), 9 * torch.eye(2).double()),
            ArgumentError,
            "not positive semidef",
        ),
        (
            lambda: mutual_information(covariances(2), covariances(3), normal(3, 2)),
            ShapeError,
            r"needs shape \[..., 2, 3\]",
        ),
        (
            lambda: total_correlation(numbers(1, 2, 2, 1).reshape(2, 2)),
            ArgumentError,
            "needs to be positive semidefinite",
        ),
        (lambda: total_correlation(covariances(3), [2, 2]), ArgumentError, r"add up to 3, found \[2, 2\]"),
    ],
)
def test_what_is_no_joint_covariance_is_refused(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
