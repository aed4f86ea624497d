"""Exponentials of Gaussian logits: against SciPy, torch.distributions, sampling, and limits in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from headspan.distributions import (
    fenton_wilkinson,
    fenton_wilkinson_distance,
    log_ratio_moments,
    log_sphere_exponential,
    lognormal_mean,
    lognormal_variance,
    sphere_ratio_mean,
    sphere_ratio_variance,
)
from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def on_sphere(draws: int, n: int, radius: float, seed: int) -> torch.Tensor:
    x = torch.randn(draws, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return radius * x / x.norm(dim=-1, keepdim=True)


def test_moments_are_those_of_torch_distributions() -> None:
    mean, variance = numbers(-1.0, 0.0, 0.7), numbers(0.3, 0.0001, 2.0)
    law = torch.distributions.LogNormal(mean, variance.sqrt())
    np.testing.assert_allclose(lognormal_mean(mean, variance), law.mean, rtol=1e-14)
    np.testing.assert_allclose(lognormal_variance(mean, variance), law.variance, rtol=1e-11)


def test_small_variances_keep_their_digits() -> None:
    assert float(lognormal_variance(numbers(0.0), numbers(1e-18))) == pytest.approx(1e-18, rel=1e-12)


def test_ratios_of_softmax_weights_have_the_moments_of_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(3, 3, generator=generator, dtype=torch.float64) / 2
    mean, covariance = numbers(0.1, -0.4, 0.3), root @ root.mT
    x = mean + torch.randn(400_000, 3, generator=generator, dtype=torch.float64) @ root.mT
    p = torch.softmax(x, -1)
    at, spread = log_ratio_moments(mean, covariance)
    for i, j in ((0, 1), (2, 0)):
        ratio = p[:, i] / p[:, j]
        error = float(ratio.std()) / math.sqrt(len(ratio))
        assert abs(float(lognormal_mean(at, spread)[i, j]) - float(ratio.mean())) < 4 * error
        assert float(lognormal_variance(at, spread)[i, j]) == pytest.approx(float(ratio.var()), rel=0.1)
    assert spread.diagonal().tolist() == [0.0, 0.0, 0.0]


def test_equal_logits_have_ratio_one_even_when_rounding_says_less() -> None:
    covariance = torch.full((2, 2), 0.1, dtype=torch.float64)
    covariance[0, 1] = covariance[1, 0] = 0.1 + 1e-17
    assert (log_ratio_moments(numbers(1.0, 1.0), covariance)[1] >= 0).all()


@pytest.mark.parametrize("n", [2, 3, 20, 301])
def test_the_exponential_on_a_sphere_is_scipys_hypergeometric(n: int) -> None:
    reach = numbers(0.0, 1e-4, 0.5, 3.0, 20.0)
    expected = np.log(scipy.special.hyp0f1(n / 2, reach.numpy() ** 2 / 4))
    np.testing.assert_allclose(log_sphere_exponential(n, reach), expected, rtol=2e-9, atol=1e-15)  # SciPy's digits


def test_the_exponential_on_a_sphere_keeps_its_digits_when_small() -> None:
    n, z = 301, 0.0625
    series = math.fsum([z / 150.5, z**2 / (2 * 150.5 * 151.5), z**3 / (6 * 150.5 * 151.5 * 152.5)])
    assert float(log_sphere_exponential(n, numbers(0.5))) == pytest.approx(math.log1p(series), rel=1e-13)


def test_the_exponential_on_a_sphere_goes_on_where_floats_end() -> None:
    """On S^2 it is sinh(r) / r, so its logarithm is r - log(2 r) far out."""
    far = numbers(50.0, 1000.0, 20000.0)
    np.testing.assert_allclose(log_sphere_exponential(3, far), far - (2 * far).log(), rtol=1e-12)


def test_on_one_dimension_the_sphere_is_two_points() -> None:
    np.testing.assert_allclose(log_sphere_exponential(1, numbers(2.0)), math.log(math.cosh(2.0)), rtol=1e-13)


def test_ratios_on_a_sphere_are_those_of_sampling_and_below_the_gaussian_value() -> None:
    n, radius = 20, 3.0
    x = on_sphere(300_000, n, radius, 3)
    ratio = (x[:, 0] - x[:, 1]).exp()
    mean = float(sphere_ratio_mean(n, torch.tensor(radius)))
    assert abs(mean - float(ratio.mean())) < 4 * float(ratio.std()) / math.sqrt(len(ratio))
    assert float(sphere_ratio_variance(n, torch.tensor(radius))) == pytest.approx(float(ratio.var()), rel=0.05)
    assert mean == pytest.approx(1.555, abs=1e-3)
    assert mean < math.exp(radius**2 / n)


def test_in_many_dimensions_the_sphere_is_gaussian() -> None:
    ratio = sphere_ratio_mean(10**6, torch.tensor(1000.0, dtype=torch.float64))
    assert float(ratio) == pytest.approx(math.e, rel=1e-5)


def test_fenton_and_wilkinson_keep_the_first_two_moments() -> None:
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(2, 5, 5, generator=generator, dtype=torch.float64) / 3
    mean, covariance = torch.randn(2, 5, generator=generator, dtype=torch.float64), root @ root.mT
    at, spread = fenton_wilkinson(mean, covariance)
    own = lognormal_mean(mean, covariance.diagonal(dim1=-2, dim2=-1))
    second = (own[:, :, None] * own[:, None, :] * covariance.exp()).sum((-2, -1))
    np.testing.assert_allclose(lognormal_mean(at, spread), own.sum(-1), rtol=1e-12)
    np.testing.assert_allclose(lognormal_variance(at, spread), second - own.sum(-1) ** 2, rtol=1e-10)


def test_one_logit_is_its_own_normaliser() -> None:
    at, spread = fenton_wilkinson(numbers(0.3), numbers(0.7)[None])
    assert (float(at), float(spread)) == pytest.approx((0.3, 0.7))


def test_the_distance_of_fenton_and_wilkinson_grows_with_the_variance() -> None:
    """The ledger's figures, thesis 5.1.3: 0.0027, 0.0144 and 0.198 for 32 logits of deviation 1/4, 1 and 2."""
    draws = 60_000
    found = [fenton_wilkinson_distance(32, s * s, draws, seed=5) for s in (0.25, 1.0, 2.0)]
    assert found[0] < 0.0027 + 1.6 / math.sqrt(draws)
    assert found[1:] == pytest.approx([0.0144, 0.198], abs=1.6 / math.sqrt(draws))


def test_the_distance_is_scipys() -> None:
    """One logit is exactly log-normal: what is left is the distance of a sample from its law."""
    x = torch.randn(1000, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64).flatten()
    expected = scipy.stats.kstest(x.numpy(), "norm").statistic
    assert fenton_wilkinson_distance(1, 2.0, 1000, seed=2) == pytest.approx(expected, rel=1e-9)
    assert fenton_wilkinson_distance(4, 0.0, 10, seed=2) == 0.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: lognormal_mean(numbers(0.0), numbers(-1.0)), ArgumentError, "at least 0, found -1"),
        (lambda: lognormal_mean(numbers(0.0), numbers(math.nan)), DegenerateSubspace, "finite entries, found 1 NaN"),
        (lambda: log_ratio_moments(numbers(0.0, 1.0), torch.eye(3)), ShapeError, "found 2 means and 3 variances"),
        (lambda: sphere_ratio_mean(1, torch.tensor(1.0)), ArgumentError, "at least 2 logits, found 1"),
        (lambda: log_sphere_exponential(0, torch.tensor(1.0)), ArgumentError, "at least 1 dimension, found 0"),
        (lambda: fenton_wilkinson_distance(0, 1.0, 1, 0), ArgumentError, "at least 1 logit and 1 draw, found 0 and 1"),
    ],
)
def test_bad_input_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
