"""Moments and information from samples: against scikit-learn, and unbiased where that is claimed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf, oas

from headspan.distributions import (
    entropy,
    entropy_estimate,
    information_estimate,
    log_determinant_bias,
    sample_moments,
    shrunk_covariance,
)
from headspan.errors import ShapeError
from tests.unit.distributions.moments import covariances, normal, numbers


def test_moments_are_centred_and_in_rows() -> None:
    x = normal(2, 30, 4, seed=1) + 100
    mean, S = sample_moments(x)
    np.testing.assert_allclose(S[1], np.cov(x[1].numpy().T), atol=1e-10)
    np.testing.assert_allclose(sample_moments(x, unbiased=False)[1][0], np.cov(x[0].numpy().T, ddof=0), atol=1e-10)
    torch.testing.assert_close(mean, x.mean(1))


@pytest.mark.parametrize(("method", "theirs"), [("ledoit-wolf", ledoit_wolf), ("oas", oas)])
@pytest.mark.parametrize("shape", [(40, 6), (5, 12)])
def test_shrinkage_is_that_of_scikit_learn(method: str, theirs, shape: tuple[int, int]) -> None:
    x = normal(3, *shape, seed=2) * torch.arange(1, shape[1] + 1)
    S, weight = shrunk_covariance(x, method)  # type: ignore[arg-type]
    for i in range(3):
        expected, expected_weight = theirs(x[i].numpy())
        np.testing.assert_allclose(S[i], expected, rtol=1e-10, atol=1e-12)
        assert float(weight[i]) == pytest.approx(expected_weight)
    assert torch.isfinite(entropy(S)).all()


def test_equal_samples_are_shrunk_without_dividing_by_zero() -> None:
    for method in ("ledoit-wolf", "oas"):
        S, weight = shrunk_covariance(torch.ones(4, 3, dtype=torch.float64), method)  # type: ignore[arg-type]
        assert (S == 0).all()
        assert torch.isfinite(weight)


def test_corrected_entropy_and_information_are_unbiased() -> None:
    draws, N = 4000, 12
    S = covariances(5, seed=3)
    x = normal(draws, N, 5, seed=4) @ torch.linalg.cholesky(S).T
    found = entropy_estimate(x)
    assert abs(float(found.mean() - entropy(S))) < 4 * float(found.std()) / math.sqrt(draws)
    plain = entropy_estimate(x, correct=False)
    assert float((plain - found).mean()) == pytest.approx(0.5 * log_determinant_bias(5, N))
    independent = normal(draws, N, 5, seed=5)
    information = information_estimate(independent[..., :2], independent[..., 2:])
    assert abs(float(information.mean())) < 4 * float(information.std()) / math.sqrt(draws)


def test_plug_in_information_of_independent_vectors_is_half_the_product_of_dimensions_per_sample() -> None:
    x = normal(300, 1000, 11, seed=6)
    found = information_estimate(x[..., :5], x[..., 5:], correct=False)
    assert float(found.mean()) == pytest.approx(30 / 2000, rel=0.05)


def test_shrinkage_gives_information_from_fewer_samples_than_dimensions() -> None:
    x = normal(6, 20, seed=7)
    assert 0 <= float(information_estimate(x[:, :10], x[:, 10:], shrinkage="oas")) < math.inf
    assert math.isfinite(float(entropy_estimate(x, shrinkage="ledoit-wolf")))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: entropy_estimate(normal(4, 4)), "in 4 dimensions needs more than 4 samples, found 4"),
        (
            lambda: information_estimate(normal(5, 3), normal(5, 3)),
            "in 6 dimensions needs more than 6 samples, found 5",
        ),
        (lambda: sample_moments(normal(1, 3)), r"\[..., N, d\] with N >= 2"),
        (lambda: sample_moments(numbers(1, math.nan).reshape(2, 1)), "needs finite entries"),
    ],
)
def test_too_few_samples_are_refused(call, message: str) -> None:
    from headspan.errors import HeadspanError

    with pytest.raises(HeadspanError, match=message):
        call()


def test_samples_of_two_vectors_come_in_pairs() -> None:
    with pytest.raises(ShapeError, match="same number of samples, found 5 and 6"):
        information_estimate(normal(5, 1), normal(6, 1))
