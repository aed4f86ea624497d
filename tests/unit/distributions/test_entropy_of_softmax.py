"""Entropy of softmax: against SciPy, two-point quadrature, sampling, and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch

from headspan.distributions import (
    expected_collision,
    expected_entropy,
    flat_entropy,
    predicted_entropy,
    sampled_entropy,
    softmax_entropy,
)
from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logits(draws: int, n: int, variance: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return math.sqrt(variance) * torch.randn(draws, n, generator=generator, dtype=torch.float64)


def test_entropy_is_scipys() -> None:
    x = logits(20, 7, 9.0)
    np.testing.assert_allclose(softmax_entropy(x), scipy.stats.entropy(scipy.special.softmax(x.numpy(), -1), axis=-1))


def test_entropy_does_not_see_masked_keys_or_a_common_shift() -> None:
    x = numbers(0.3, -1.0, 2.0)
    masked = torch.cat([x + 1e4, numbers(-math.inf, -math.inf)])
    assert float(softmax_entropy(masked)) == pytest.approx(float(softmax_entropy(x)), abs=1e-10)
    assert float(softmax_entropy(numbers(5.0))) == 0.0
    assert float(softmax_entropy(torch.zeros(8))) == pytest.approx(math.log(8))


@pytest.mark.parametrize("variance", [0.01, 1.0, 30.0, 400.0])
def test_two_keys_agree_with_one_integral(variance: float) -> None:
    """Two logits matter through their difference alone, a Gaussian of twice the variance."""
    sd = math.sqrt(2 * variance)
    entropy = lambda x: float(scipy.special.entr(scipy.special.expit([x, -x])).sum())  # noqa: E731
    mean, _ = scipy.integrate.quad(
        lambda x: entropy(x) * scipy.stats.norm.pdf(x, scale=sd), -40, 40, limit=400, epsabs=1e-13
    )
    assert float(expected_entropy(torch.tensor(variance), torch.tensor(2))) == pytest.approx(mean, abs=1e-10)


@pytest.mark.parametrize("n", [3, 40, 700])
@pytest.mark.parametrize("variance", [0.25, 4.0, 49.0])
def test_means_are_those_of_sampling(n: int, variance: float) -> None:
    x = logits(1_000_000 // n, n, variance, seed=n)
    mean, error = sampled_entropy(x)
    assert abs(float(expected_entropy(torch.tensor(variance), torch.tensor(n))) - mean) < 4 * error
    squares = torch.softmax(x, -1).square().sum(-1)
    found = float(expected_collision(torch.tensor(variance), torch.tensor(n)))
    assert abs(found - float(squares.mean())) < 4 * float(squares.std()) / math.sqrt(len(x))


def test_small_variances_give_the_quadratic_law_and_large_ones_one_key() -> None:
    n = torch.tensor([2, 10, 1000])
    small = expected_entropy(numbers(1e-4), n)
    np.testing.assert_allclose(n.double().log() - small, 1e-4 / 2 * (1 - 1 / n.double()), rtol=3e-4)
    assert expected_entropy(torch.tensor(0.0), n).tolist() == pytest.approx(n.double().log().tolist(), abs=1e-12)
    assert (expected_entropy(torch.tensor(400.0), n) / n.log() < 0.07).all()
    assert expected_collision(torch.tensor(0.0), n).tolist() == pytest.approx((1 / n.double()).tolist(), abs=1e-12)


def test_many_keys_give_the_flat_law_until_it_breaks_down() -> None:
    n = torch.tensor(2**22)
    for variance in (0.5, 2.0, 4.0):
        v = torch.tensor(variance)
        assert float(expected_entropy(v, n)) == pytest.approx(float(flat_entropy(v, n)), abs=2e-4)
    assert float(flat_entropy(torch.tensor(40.0), n)) < 0 < float(expected_entropy(torch.tensor(40.0), n))


def test_entropy_falls_with_variance_and_rises_with_length() -> None:
    table = expected_entropy(torch.linspace(0, 60, 25)[:, None], torch.tensor([1, 2, 3, 9, 80, 3000]))
    assert (table.diff(dim=0)[:, 1:] < 0).all()
    assert (table.diff(dim=1) > 0).all()
    assert (table[:, 0] == 0).all()


def test_the_table_agrees_with_the_quadrature() -> None:
    generator = torch.Generator().manual_seed(4)
    variance = 400 * torch.rand(40, 1, generator=generator, dtype=torch.float64) ** 3
    keys = torch.tensor([1, 2, 3, 17, 128, 1000, 50_000, 2**24])
    exact, fast = expected_entropy(variance, keys), predicted_entropy(variance, keys)
    assert float((exact - fast).abs().max()) < 1e-6
    assert (fast[:, 0] == 0).all()
    assert float(predicted_entropy(torch.tensor(1.0), torch.tensor(10))) == pytest.approx(1.923551, abs=1e-6)


def test_beyond_the_table_a_prediction_stays_where_the_table_ends() -> None:
    n = torch.tensor(100)
    assert float(predicted_entropy(torch.tensor(1e6), n)) == pytest.approx(
        float(predicted_entropy(torch.tensor(400.0), n))
    )


def test_one_row_has_no_standard_error() -> None:
    assert math.isnan(sampled_entropy(torch.zeros(1, 3))[1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: softmax_entropy(numbers(0.0, math.nan)), ArgumentError, "logits that are finite, or -inf"),
        (lambda: softmax_entropy(numbers(-math.inf)), ArgumentError, "one at least finite in each row"),
        (lambda: softmax_entropy(torch.zeros(3, 0)), ShapeError, "at least 1 logit"),
        (lambda: expected_entropy(numbers(-1.0), torch.tensor([3])), ArgumentError, "at least 0, found -1"),
        (lambda: expected_entropy(numbers(1.0), torch.tensor([0])), ArgumentError, "found 0 to 0"),
        (
            lambda: expected_entropy(numbers(500.0), torch.tensor([2])),
            ArgumentError,
            "up to 400 are tabulated, found 500",
        ),
        (lambda: predicted_entropy(numbers(math.nan), torch.tensor([2])), DegenerateSubspace, "found 1 NaN"),
    ],
)
def test_bad_input_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
