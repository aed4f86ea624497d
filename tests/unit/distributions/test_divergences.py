"""Jensen-Shannon divergence of Gaussians, and divergences of discrete distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy as scipy_entropy
from scipy.stats import norm

from headspan.distributions import (
    discrete_entropy,
    discrete_jsd,
    discrete_kl,
    jensen_shannon,
    moment_matched_jsd,
)
from headspan.errors import ArgumentError
from tests.unit.distributions.moments import covariances, flat_covariance, normal, numbers, stream


def line(mean: float, sd: float) -> tuple[torch.Tensor, torch.Tensor]:
    return numbers(mean), numbers(sd**2).reshape(1, 1)


def integral(m1: float, s1: float, m2: float, s2: float) -> float:
    """The definition, by SciPy's quadrature."""

    def term(x: float) -> float:
        p, q = norm.pdf(x, m1, s1), norm.pdf(x, m2, s2)
        return 0.5 * sum(a * math.log(2 * a / (p + q)) for a in (p, q) if a > 0)

    cuts = sorted({m + k * s for m, s in ((m1, s1), (m2, s2)) for k in (-6, -2, 0, 2, 6)})
    return float(scipy.integrate.quad(term, -60, 60, points=cuts, limit=2000, epsabs=1e-13, epsrel=1e-13)[0])


@pytest.mark.parametrize("case", [(0, 1, 4, 1), (0, 1, 0.3, 0.01), (0, 1, 0, 3), (0, 2, 1, 0.2), (0, 1, 0.001, 1)])
def test_in_one_dimension_it_is_the_integral(case: tuple[float, ...]) -> None:
    found = jensen_shannon(*line(*case[:2]), *line(*case[2:]))
    assert float(found.value) == pytest.approx(integral(*case), abs=1e-12)
    assert float(found.standard_error) == 0.0
    assert float(found.lower) <= float(found.value) <= float(found.upper)


def test_in_more_dimensions_draws_agree_with_the_line_they_reduce_to() -> None:
    """With one covariance for both, only the Mahalanobis distance of the means counts."""
    S, mu = covariances(4, seed=1), normal(4, seed=2)
    distance = math.sqrt(float(mu @ torch.linalg.solve(S, mu)))
    found = jensen_shannon(torch.zeros(4, dtype=torch.float64), S, mu, S, samples=40_000, seed=3)
    assert abs(float(found.value) - integral(0, 1, distance, 1)) < 4 * float(found.standard_error)
    assert 0 < float(found.standard_error) < 0.01


@given(st.integers(1, 5), st.integers(0, 300), st.floats(0, 30))
def test_it_never_exceeds_log_two_and_stays_within_its_bounds(d: int, seed: int, gap: float) -> None:
    mu, S = normal(2, d, seed=seed), covariances(2, d, seed=seed)
    found = jensen_shannon(mu[0], S[0], mu[1] + gap, S[1], samples=64, seed=seed)
    assert 0 <= float(found.lower) <= float(found.value) <= float(found.upper) <= math.log(2)
    assert float(moment_matched_jsd(mu[0], S[0], mu[1] + gap, S[1])) >= float(found.lower) - 1e-9


def test_the_gaussian_of_the_same_moments_overestimates_and_passes_log_two() -> None:
    pair = (*line(0, 1), *line(4, 1))
    assert float(jensen_shannon(*pair).value) == pytest.approx(0.6327, abs=5e-5)
    assert float(moment_matched_jsd(*pair)) == pytest.approx(0.5 * math.log(5)) == pytest.approx(0.8047, abs=5e-5)


def test_equal_gaussians_and_gaussians_apart() -> None:
    S = torch.eye(2, dtype=torch.float64)
    zero = numbers(0, 0)
    assert float(jensen_shannon(zero, S, zero, S).value) == pytest.approx(0, abs=1e-12)
    flat = torch.diag(numbers(1, 0))
    assert float(jensen_shannon(zero, S, zero, flat).value) == pytest.approx(math.log(2))
    batch = jensen_shannon(normal(3, 2), covariances(3, 2), zero, S, seed=1)
    assert batch.value.shape == batch.upper.shape == (3,)


def test_gaussians_on_one_plane_are_refused_with_advice() -> None:
    flat, zero = flat_covariance(3, 2), numbers(0, 0, 0)
    with pytest.raises(ArgumentError, match="coordinates on it"):
        jensen_shannon(zero, flat, zero, 2 * flat)
    with pytest.raises(ArgumentError, match="coordinates on it"):
        moment_matched_jsd(zero, flat, zero, 2 * flat)
    with pytest.raises(ArgumentError, match="at least 2 samples, found 1"):
        jensen_shannon(numbers(0, 0), torch.eye(2).double(), numbers(1, 0), torch.eye(2).double(), samples=1)


def distributions(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(*shape, generator=stream(seed), dtype=torch.float64).pow(3).softmax(-1)


def test_discrete_quantities_are_those_of_scipy() -> None:
    p, q = distributions(7, seed=1), distributions(7, seed=2)
    assert float(discrete_entropy(p)) == pytest.approx(scipy_entropy(p))
    assert float(discrete_kl(p, q)) == pytest.approx(scipy_entropy(p, q))
    assert float(discrete_jsd(p, q)) == pytest.approx(jensenshannon(p, q) ** 2)


def test_discrete_limits() -> None:
    p, q = numbers(1, 0), numbers(0, 1)
    assert float(discrete_entropy(p)) == 0.0
    assert float(discrete_kl(p, q)) == math.inf
    assert float(discrete_kl(p, p)) == 0.0
    assert float(discrete_jsd(p, q)) == pytest.approx(math.log(2))
    assert float(discrete_entropy(torch.full((8,), 0.125, dtype=torch.float64))) == pytest.approx(math.log(8))


def test_the_root_of_jsd_obeys_the_triangle_and_jsd_itself_does_not() -> None:
    p = distributions(300, 3, 4, seed=3)
    first, second, third = (discrete_jsd(p[:, i], p[:, j]) for i, j in ((0, 1), (1, 2), (0, 2)))
    assert (third.sqrt() <= first.sqrt() + second.sqrt() + 1e-9).all()
    assert np.count_nonzero(third > first + second) > 0


@pytest.mark.parametrize(
    ("values", "message"),
    [((0.5, 0.6), "found a sum of 1.1"), ((1.5, -0.5), "none below 0, found -0.5"), ((), "found none")],
)
def test_what_is_no_distribution_is_refused(values: tuple[float, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        discrete_entropy(torch.tensor(values, dtype=torch.float64))
