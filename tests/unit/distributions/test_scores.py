"""Scores x^T C y: moments against draws and against SciPy's exact laws, bounds against counterexamples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from headspan.distributions import (
    cosine_bound_violations,
    mixture_score_moments,
    random_form_covariance,
    score_bound,
    score_covariance,
    score_moments,
    self_score_moments,
    sphere_score_moments,
    symmetric_score_bound,
)
from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces import Factored
from tests.unit.distributions.moments import covariances, normal, numbers

DRAWS = 200_000


def within_error(draws: torch.Tensor, expected: float | torch.Tensor) -> bool:
    return abs(float(draws.mean()) - float(expected)) < 4 * float(draws.std()) / math.sqrt(len(draws))


def test_mean_and_variance_of_dependent_vectors_are_those_of_draws() -> None:
    C, mu, S = normal(3, 2, seed=1), normal(5, seed=2), covariances(5, seed=3)
    z = mu + normal(DRAWS, 5, seed=4) @ torch.linalg.cholesky(S).T
    score = ((z[:, :3] @ C) * z[:, 3:]).sum(-1)
    found = score_moments(C, mu[:3], S[:3, :3], mu[3:], S[3:, 3:], S[:3, 3:])
    assert within_error(score, found.mean)
    assert within_error((score - found.mean) ** 2, found.variance)
    standard = (score - found.mean) / found.variance.sqrt()
    assert within_error(standard**3, found.skewness)
    assert within_error(standard**4, found.excess_kurtosis + 3)
    independent = score_moments(C, mu[:3], S[:3, :3], mu[3:], S[3:, 3:])
    assert not within_error((score - score.mean()) ** 2, independent.variance)


def test_moments_are_the_textbook_traces() -> None:
    C, mx, my = normal(4, 4, seed=5), normal(4, seed=6), normal(4, seed=7)
    joint = covariances(8, seed=8)
    Sx, Sy, Sxy = joint[:4, :4], joint[4:, 4:], joint[:4, 4:]
    found = score_moments(C, mx, Sx, my, Sy, Sxy)
    Syx = Sxy.T
    mean = mx @ C @ my + (C @ Syx).trace()
    variance = (C @ Sy @ C.T @ Sx).trace() + mx @ C @ Sy @ C.T @ mx + my @ C.T @ Sx @ C @ my
    variance = variance + (C @ Syx @ C @ Syx).trace() + 2 * mx @ C @ Syx @ C @ my
    assert (float(found.mean), float(found.variance)) == pytest.approx((float(mean), float(variance)))


def test_a_token_with_itself_is_a_quadratic_form() -> None:
    C, mu, S = normal(4, 4, seed=9), normal(4, seed=10), covariances(4, seed=11)
    K = C + C.T
    found = self_score_moments(C, mu, S)
    assert float(found.mean) == pytest.approx(float((C @ S).trace() + mu @ C @ mu))
    assert float(found.variance) == pytest.approx(float(0.5 * (K @ S @ K @ S).trace() + mu @ K @ S @ K @ mu))
    chi = self_score_moments(torch.eye(3).double(), numbers(0, 0, 0), torch.eye(3).double())
    law = scipy.stats.chi2(3).stats(moments="mvsk")
    np.testing.assert_allclose([chi.mean, chi.variance, chi.skewness, chi.excess_kurtosis], law)


def test_factors_give_what_the_full_matrix_gives() -> None:
    A, B = normal(2, 9, 3, seed=12), normal(2, 9, 3, seed=13)
    mu, S = normal(9, seed=14), covariances(9, seed=15)
    factored, dense = (self_score_moments(C, mu, S) for C in (Factored(A, B), A @ B.mT))
    for name in ("mean", "variance", "skewness", "excess_kurtosis", "departure"):
        torch.testing.assert_close(getattr(factored, name), getattr(dense, name))
    assert factored.mean.shape == (2,)


def test_kurtosis_of_independent_vectors_comes_from_the_spectrum() -> None:
    zero, eye = torch.zeros(6, dtype=torch.float64), torch.eye(6, dtype=torch.float64)
    C = normal(6, 6, seed=16)
    s = torch.linalg.svdvals(C)
    found = score_moments(C, zero, eye, zero, eye)
    assert float(found.excess_kurtosis) == pytest.approx(float(6 * (s**4).sum() / (s**2).sum() ** 2))
    assert float(found.skewness) == pytest.approx(0, abs=1e-12)
    spiked = score_moments(torch.diag(numbers(9, 0, 0, 0, 0, 0)), zero, eye, zero, eye)
    assert float(spiked.excess_kurtosis) == pytest.approx(6.0)
    assert float(spiked.departure) > 0.1


def test_the_departure_tells_how_far_from_normal_a_score_is() -> None:
    n = 60
    zero, eye = torch.zeros(n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    mu = numbers(*([0.5] * n))
    found = score_moments(eye, mu, eye, mu, eye)
    x, y = normal(DRAWS, n, seed=17) + 0.5, normal(DRAWS, n, seed=18) + 0.5
    score = ((x * y).sum(-1) - found.mean) / found.variance.sqrt()
    distance = scipy.stats.kstest(score.numpy(), "norm").statistic
    assert float(found.departure) == pytest.approx(distance, rel=0.35)
    assert float(score_moments(eye, zero, 0 * eye, mu, eye).variance) == 0.0


def test_two_scores_of_one_query_vary_together() -> None:
    C, mu, S = normal(3, 3, seed=19), normal(3, 3, seed=20), covariances(3, 3, seed=21)
    cross = 0.4 * S[1]
    found = score_covariance(C, mu[0], S[0], mu[1], mu[2], cross)
    x = mu[0] + normal(DRAWS, 3, seed=22) @ torch.linalg.cholesky(S[0]).T
    root = torch.linalg.cholesky(S[1])
    shared, own = normal(DRAWS, 3, seed=23) @ root.T, normal(2, DRAWS, 3, seed=24) @ root.T
    y, w = (mu[k] + 0.4**0.5 * shared + 0.6**0.5 * own[k - 1] for k in (1, 2))
    first, second = ((x @ C) * y).sum(-1), ((x @ C) * w).sum(-1)
    assert within_error((first - first.mean()) * (second - second.mean()), found)
    same = score_covariance(C, mu[0], S[0], mu[1], mu[1], S[1])
    assert float(same) == pytest.approx(float(score_moments(C, mu[0], S[0], mu[1], S[1]).variance))


def test_a_mixture_of_scores_has_total_variance() -> None:
    mean, variance = mixture_score_moments(numbers(0.25, 0.75), numbers(0, 4), numbers(1, 2))
    assert (float(mean), float(variance)) == pytest.approx((3.0, 1.75 + 0.25 * 0.75 * 16))


@pytest.mark.parametrize("cosine", [-0.3, 0.0, 0.6, 1.0])
def test_scores_on_spheres_are_those_of_draws(cosine: float) -> None:
    n, C = 5, normal(5, 5, seed=25)
    x = torch.nn.functional.normalize(normal(DRAWS, n, seed=26), dim=-1)
    other = normal(DRAWS, n, seed=27)
    other = torch.nn.functional.normalize(other - (other * x).sum(-1, keepdim=True) * x, dim=-1)
    y = cosine * x + math.sqrt(1 - cosine**2) * other
    score = 6 * ((x @ C) * y).sum(-1)
    mean, variance = sphere_score_moments(C, cosine, 2.0, 3.0)
    assert within_error(score, mean)
    assert within_error((score - mean) ** 2, variance)
    assert float(sphere_score_moments(torch.eye(4).double(), cosine)[1]) == pytest.approx(0, abs=1e-15)


def test_random_weights_do_not_see_the_angle_between_query_and_key() -> None:
    x, y, w = normal(3, 4, seed=28)
    C = normal(DRAWS, 4, 4, seed=29)
    first, second = torch.einsum("a,sab,b->s", x, C, y), torch.einsum("a,sab,b->s", x, C, w)
    assert within_error(first**2, random_form_covariance(x, y, x, y))
    assert within_error(first * second, random_form_covariance(x, y, x, w))


def test_no_score_passes_its_bound_and_the_top_pair_reaches_it() -> None:
    A, B = normal(6, 2, seed=30), normal(6, 2, seed=31)
    C = Factored(A, B)
    U, s, Vh = torch.linalg.svd(C.to_dense())
    assert float(score_bound(C, U[:, 0], Vh[0])) == pytest.approx(float(s[0]))
    x, y = normal(2, 1000, 6, seed=32)
    assert (((x @ A) * (y @ B)).sum(-1).abs() <= score_bound(C, x, y)).all()
    S = A @ A.T - B @ B.T
    assert (((x @ S) * y).sum(-1).abs() <= symmetric_score_bound(S, x, y) + 1e-9).all()


def test_the_bound_with_a_cosine_has_counterexamples_from_two_dimensions_on() -> None:
    assert cosine_bound_violations(1, 500, seed=0).share == 0.0
    found = cosine_bound_violations(2, 2000, seed=0)
    assert found.share == pytest.approx(0.209, abs=0.04)
    assert found.corrected_share == 0.0
    assert found.worst_ratio > 1


EYE = torch.eye(2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: self_score_moments(torch.eye(3).double(), numbers(0, 0), EYE), ShapeError, "C of 3 x 3 does not fit"),
        (lambda: score_moments(EYE, numbers(0, 0), EYE, numbers(0, 0), EYE, normal(3, 2)), ShapeError, "needs shape"),
        (lambda: score_moments(EYE, numbers(0), EYE, numbers(0, 0), EYE), ShapeError, "length 1 does not fit"),
        (lambda: sphere_score_moments(EYE, 1.5), ArgumentError, r"lies in \[-1, 1\]"),
        (lambda: sphere_score_moments(torch.ones(1, 1).double(), 0.5), ShapeError, "side at least 2"),
        (lambda: cosine_bound_violations(2, 0, 0), ArgumentError, "at least 1, found n=2, draws=0"),
    ],
)
def test_what_does_not_fit_is_refused(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
