"""Moments through ReLU and LayerNorm: against SciPy's integrals, the arc-cosine kernel, and sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

from headspan.distributions import (
    layer_norm,
    layer_norm_moments,
    rectified_covariance,
    rectified_mean,
    rectified_variance,
)
from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def pair(rho: float) -> torch.Tensor:
    return torch.tensor([[1.0, rho], [rho, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize("mean", [-3.0, -0.5, 0.0, 0.4, 4.0])
@pytest.mark.parametrize("sd", [0.2, 1.7])
def test_mean_and_variance_are_integrals(mean: float, sd: float) -> None:
    moments = [
        scipy.integrate.quad(
            lambda x, k=k: x**k * scipy.stats.norm.pdf(x, mean, sd),
            0,
            max(0, mean) + 15 * sd,
            points=[max(1e-9, mean)],
            epsabs=1e-16,
        )[0]
        for k in (1, 2)
    ]
    assert float(rectified_mean(numbers(mean), numbers(sd**2))) == pytest.approx(moments[0], rel=1e-8, abs=1e-14)
    expected = moments[1] - moments[0] ** 2
    assert float(rectified_variance(numbers(mean), numbers(sd**2))) == pytest.approx(expected, rel=1e-7, abs=1e-14)


def test_far_from_zero_nothing_is_rectified_or_everything() -> None:
    mean, variance = numbers(30.0, -30.0, 5.0, -5.0), numbers(1.0, 1.0, 0.0, 0.0)
    assert rectified_mean(mean, variance).tolist() == pytest.approx([30.0, 0.0, 5.0, 0.0])
    assert rectified_variance(mean, variance).tolist() == pytest.approx([1.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("rho", [-1.0, -0.999999, -0.6, 0.0, 0.3, 0.97, 0.9999999, 1.0])
def test_at_mean_zero_the_covariance_is_the_arc_cosine_kernel(rho: float) -> None:
    kernel = (math.sqrt(1 - rho**2) + rho * (math.pi - math.acos(rho))) / (2 * math.pi)
    found = float(rectified_covariance(numbers(0.0, 0.0), pair(rho))[0, 1])
    assert found == pytest.approx(kernel - 1 / (2 * math.pi), abs=1e-12)


@pytest.mark.parametrize("rho", [-0.95, 0.2, 0.8])
@pytest.mark.parametrize("mean", [(0.7, 0.2), (-1.1, 0.9), (-0.4, -0.8)])
def test_with_means_the_covariance_is_a_double_integral(rho: float, mean: tuple[float, float]) -> None:
    """Given x, y is Gaussian: the inner integral is a rectified mean, the outer one a sum over x."""
    x = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    inner = rectified_mean(mean[1] + rho * x, torch.full_like(x, 1 - rho**2))
    weight = (-x * x / 2).exp() / math.sqrt(2 * math.pi) * (x[1] - x[0])
    product = float((weight * (mean[0] + x).clamp(min=0) * inner).sum())
    means = rectified_mean(numbers(*mean), numbers(1.0, 1.0))
    expected = product - float(means.prod())
    assert float(rectified_covariance(numbers(*mean), pair(rho))[0, 1]) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("mean", [(0.7, 0.2), (-1.1, 0.9), (3.0, -2.0)])
def test_perfect_correlation_is_the_limit(mean: tuple[float, float]) -> None:
    x = torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    weight = (-x * x / 2).exp() / math.sqrt(2 * math.pi) * (x[1] - x[0])
    means = rectified_mean(numbers(*mean), numbers(1.0, 1.0))
    for rho in (1.0, -1.0):
        product = float((weight * (mean[0] + x).clamp(min=0) * (mean[1] + rho * x).clamp(min=0)).sum())
        found = float(rectified_covariance(numbers(*mean), pair(rho))[0, 1])
        assert found == pytest.approx(product - float(means.prod()), abs=2e-6)


def test_covariance_of_many_coordinates_is_that_of_sampling() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(2, 5, 5, generator=generator, dtype=torch.float64)
    mean, covariance = torch.randn(2, 5, generator=generator, dtype=torch.float64), root @ root.mT
    found = rectified_covariance(mean, covariance)
    draws = 200_000
    for k in range(2):
        x = mean[k] + torch.randn(draws, 5, generator=generator, dtype=torch.float64) @ root[k].mT
        sampled = torch.cov(x.clamp(min=0).mT)
        own = found[k].diagonal()
        error = (own[:, None] * own[None, :] * 8 / draws).sqrt()
        assert ((found[k] - sampled).abs() < 4 * error).all()
    np.testing.assert_allclose(found, found.mT, atol=1e-14)
    assert (torch.linalg.eigvalsh(found) > 0).all()


def test_a_constant_coordinate_has_no_covariance() -> None:
    covariance = torch.diag(numbers(1.0, 0.0))
    assert rectified_covariance(numbers(0.0, 2.0), covariance)[:, 1].tolist() == [0.0, 0.0]


def test_layer_norm_is_torchs() -> None:
    x = torch.randn(4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    np.testing.assert_allclose(layer_norm(x), torch.nn.functional.layer_norm(x, (7,), eps=0.0), atol=1e-13)
    np.testing.assert_allclose(layer_norm(x).square().sum(-1), 7.0)
    assert layer_norm(torch.ones(2, 3)).abs().sum() == 0


def test_isotropic_tokens_leave_layer_norm_evenly_spread_across_the_diagonal() -> None:
    d = 6
    mean, covariance = layer_norm_moments(torch.zeros(d), 3.0 * torch.eye(d))
    expected = d / (d - 1) * (torch.eye(d) - torch.ones(d, d) / d)
    np.testing.assert_allclose(covariance, expected.double(), atol=1e-6)
    assert mean.abs().max() == 0
    x = layer_norm(torch.randn(200_000, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64))
    np.testing.assert_allclose(torch.cov(x.mT), covariance, atol=4 * 2 / math.sqrt(200_000))


def test_moments_through_layer_norm_are_near_those_of_sampling() -> None:
    """Within the stated order 2 tr(S^2) / (tr S)^2; the trace is exact."""
    d, generator = 48, torch.Generator().manual_seed(3)
    root = torch.randn(d, d, generator=generator, dtype=torch.float64) / math.sqrt(d)
    at = torch.randn(d, generator=generator, dtype=torch.float64)
    mean, covariance = layer_norm_moments(at, root @ root.mT)
    x = layer_norm(at + torch.randn(60_000, d, generator=generator, dtype=torch.float64) @ root.mT)
    assert float(mean.square().sum() + covariance.trace()) == pytest.approx(d)
    S = root @ root.mT
    order = 2 * float((S @ S).trace() / S.trace() ** 2)
    assert float((x.mean(0) - mean).norm() / mean.norm()) < order
    assert float(torch.linalg.matrix_norm(torch.cov(x.mT) - covariance) / torch.linalg.matrix_norm(covariance)) < order


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rectified_mean(numbers(0.0), numbers(-0.1)), ArgumentError, "at least 0, found -0.1"),
        (lambda: rectified_mean(numbers(math.nan), numbers(0.1)), DegenerateSubspace, "found 1 NaN"),
        (lambda: rectified_covariance(numbers(0.0), torch.eye(2)), ShapeError, "one size, found 1 and 2"),
        (lambda: rectified_covariance(numbers(0.0, 0.0), pair(1.1)), ArgumentError, r"in \[-1, 1\], found 1.1"),
        (lambda: layer_norm(torch.ones(3, 1)), ShapeError, "at least 2 coordinates, found 1"),
        (
            lambda: layer_norm_moments(torch.ones(2), torch.ones(2, 2)),
            ArgumentError,
            "equal coordinates with probability 1",
        ),
        (lambda: layer_norm_moments(torch.ones(3), torch.ones(2, 2)), ShapeError, "one size, found 3 and 2"),
    ],
)
def test_bad_input_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
