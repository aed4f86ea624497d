"""Entropy, cross-entropy and divergence of Gaussians: against torch.distributions, SciPy, and the limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch.distributions import MultivariateNormal

from headspan.distributions import (
    cross_entropy,
    entropy,
    entropy_change,
    kl_divergence,
    linear_image,
    pairwise_kl_divergence,
)
from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError
from tests.unit.distributions.moments import covariances, flat_covariance, normal, numbers


def test_entropy_and_divergence_are_those_of_torch_and_scipy() -> None:
    mu, nu = normal(2, 3, 5, seed=1), normal(3, 5, seed=2)
    S, T = covariances(2, 3, 5, seed=3), covariances(3, 5, seed=4)
    p, q = MultivariateNormal(mu, S), MultivariateNormal(nu, T)
    torch.testing.assert_close(kl_divergence(mu, S, nu, T), torch.distributions.kl_divergence(p, q))
    torch.testing.assert_close(entropy(S), p.entropy())
    assert float(entropy(T)[0]) == pytest.approx(multivariate_normal(cov=T[0].numpy()).entropy())
    torch.testing.assert_close(cross_entropy(mu, S, nu, T), p.entropy() + torch.distributions.kl_divergence(p, q))


def test_cross_entropy_is_minus_the_mean_log_density() -> None:
    mu, nu, S, T = normal(3, seed=1), normal(3, seed=2), covariances(3, seed=3), covariances(3, seed=4)
    torch.manual_seed(0)
    surprise = -MultivariateNormal(nu, T).log_prob(MultivariateNormal(mu, S).sample((100_000,)))
    error = float(surprise.std()) / math.sqrt(100_000)
    assert abs(float(surprise.mean() - cross_entropy(mu, S, nu, T))) < 4 * error


@given(st.integers(1, 70), st.integers(0, 1000))
def test_nothing_diverges_from_itself(d: int, seed: int) -> None:
    mu, S = normal(d, seed=seed), covariances(d, seed=seed)
    assert 0 <= float(kl_divergence(mu, S, mu, S)) <= 1e-12


@given(st.integers(1, 6), st.integers(0, 1000))
def test_an_invertible_map_leaves_divergences_and_shifts_entropies(d: int, seed: int) -> None:
    mu, nu, S, T = (
        normal(d, seed=seed),
        normal(d, seed=seed + 1),
        covariances(d, seed=seed),
        covariances(d, seed=seed + 1),
    )
    L = normal(d, d, seed=seed + 2) + 3 * torch.eye(d, dtype=torch.float64)
    first, second = linear_image(mu, S, L), linear_image(nu, T, L)
    before = kl_divergence(mu, S, nu, T)
    assert float(kl_divergence(*first, *second)) == pytest.approx(float(before), rel=1e-6, abs=1e-9)
    assert float(entropy(first[1])) == pytest.approx(float(entropy(S) + entropy_change(L)), abs=1e-8)


def test_entropy_grows_with_the_size_of_the_determinant_whatever_its_sign() -> None:
    assert float(entropy_change(torch.diag(numbers(-2.0, 1.0)))) == pytest.approx(math.log(2))
    assert float(entropy_change(torch.diag(numbers(0.0, 1.0)))) == -math.inf


def test_all_pairs_agree_with_pair_by_pair() -> None:
    mu, S = normal(6, 4, seed=1), covariances(6, 4, seed=2)
    S[2] = flat_covariance(4, 2)
    expected = kl_divergence(mu[:, None], S[:, None], mu, S)
    torch.testing.assert_close(pairwise_kl_divergence(mu, S), expected, atol=1e-11, rtol=1e-11)
    assert torch.isinf(expected[2]).sum() == 5


def test_without_spread_in_a_direction_the_limits_are_returned() -> None:
    S, zero, away = flat_covariance(3, 2), numbers(0, 0, 0), numbers(1, 1, 1)
    full = torch.eye(3, dtype=torch.float64)
    assert float(entropy(S)) == -math.inf
    assert float(kl_divergence(zero, S, zero, full)) == math.inf
    assert float(kl_divergence(zero, full, zero, S)) == math.inf
    assert float(kl_divergence(away, S, zero, S)) == math.inf
    assert float(kl_divergence(zero, S, zero, S)) == pytest.approx(0, abs=1e-12)
    # On the common plane: two dimensions in which variances are doubled.
    assert float(kl_divergence(zero, 2 * S, zero, S)) == pytest.approx(0.5 * (4 - 2 - 2 * math.log(2)))
    assert float(cross_entropy(zero, S, zero, S)) == -math.inf
    assert float(cross_entropy(away, S, zero, S)) == math.inf
    assert float(cross_entropy(zero, full, zero, S)) == math.inf


def test_two_planes_at_an_angle_share_no_support() -> None:
    zero = numbers(0, 0, 0)
    S, T = torch.diag(numbers(1, 1, 0)), torch.diag(numbers(1, 0, 1))
    assert float(kl_divergence(zero, S, zero, T)) == math.inf


def test_a_small_unit_is_not_taken_for_no_spread() -> None:
    S, T = torch.diag(numbers(1, 1e-24)), torch.diag(numbers(2, 1e-24))
    expected = 0.5 * math.log((2 * math.pi * math.e) ** 2 * 1e-24)
    assert float(entropy(S)) == pytest.approx(expected)
    zero = numbers(0, 0)
    assert float(kl_divergence(zero, S, zero, T)) == pytest.approx(0.5 * (0.5 - 1 + math.log(2)))
    assert float(cross_entropy(zero, S, zero, S)) == pytest.approx(expected)


def test_many_matrices_come_out_as_one_by_one() -> None:
    """More than are worked on together, a singular one among them."""
    S, mu = covariances(150, 33, seed=5), normal(150, 33, seed=6)
    S[77] = flat_covariance(33, 5)
    together = entropy(S)
    assert float(together[77]) == -math.inf
    np.testing.assert_allclose(together[[0, 149]], [float(entropy(S[0])), float(entropy(S[149]))])
    assert torch.isinf(kl_divergence(mu, S, mu[0], S[0])).nonzero().flatten().tolist() == [77]


def test_a_large_symmetric_matrix_does_not_hide_a_small_one_that_is_not() -> None:
    pair = torch.stack([1e12 * torch.eye(2).double(), numbers(1, 0.5, 0, 1).reshape(2, 2)])
    with pytest.raises(ArgumentError, match=r"apart by 0\.5 of the largest entry"):
        entropy(pair)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: entropy(torch.ones(2, 3, dtype=torch.float64)), ShapeError, "needs to be square"),
        (lambda: entropy(numbers(1, 2, 0, 1).reshape(2, 2)), ArgumentError, "needs to be symmetric"),
        (lambda: entropy(torch.diag(numbers(1, -1))), ArgumentError, "needs to be positive semidefinite"),
        (lambda: entropy(torch.diag(numbers(1, math.nan))), DegenerateSubspace, "needs finite entries"),
        (
            lambda: kl_divergence(numbers(0, 0), torch.eye(2).double(), numbers(0), torch.eye(1).double()),
            ShapeError,
            "need one dimension, found 2 and 1",
        ),
        (
            lambda: kl_divergence(numbers(0), torch.eye(2).double(), numbers(0, 0), torch.eye(2).double()),
            ShapeError,
            "length 1 does not fit",
        ),
        (
            lambda: kl_divergence(normal(3, 2), covariances(3, 2), normal(4, 2), covariances(4, 2)),
            ShapeError,
            "batch axes need to fit",
        ),
        (lambda: entropy_change(normal(2, 3)), ShapeError, "for square L"),
        (lambda: linear_image(normal(2), covariances(2), normal(3, 3)), ShapeError, "a map of 3 columns"),
    ],
)
def test_what_is_no_gaussian_is_refused(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
