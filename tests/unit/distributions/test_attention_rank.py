"""Ranks of attention patterns and weights that follow the data: known spectra, limits, sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headspan.distributions import data_dependence, energy_rank, pattern_rank, random_pattern
from headspan.errors import ArgumentError, DegenerateSubspace


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_energy_rank_counts_the_fewest_values() -> None:
    A = torch.diag(torch.tensor([2.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    found = [int(energy_rank(A, share)) for share in (0.1, 4 / 6, 0.7, 5 / 6, 0.99, 1.0)]
    assert found == [1, 1, 2, 2, 3, 3]
    assert int(energy_rank(torch.zeros(2, 2), 0.5)) == 0
    assert energy_rank(A.expand(2, 3, 4, 4), 0.7).tolist() == [[2] * 3] * 2


def test_uniform_attention_has_rank_one_and_self_attention_full_rank() -> None:
    uniform = pattern_rank(torch.full((8, 8), 1 / 8))
    assert [int(rank) for rank in (uniform.rank90, uniform.rank99, uniform.numerical)] == [1, 1, 1]
    own = pattern_rank(torch.eye(10))
    assert [int(rank) for rank in (own.rank90, own.rank99, own.numerical)] == [9, 10, 10]
    assert own.log_n == pytest.approx(math.log(10))


def test_random_attention_has_full_rank_far_above_the_logarithm() -> None:
    found = pattern_rank(random_pattern(256, 64, seeded(0)))
    assert int(found.numerical) == 256
    assert int(found.rank90) > 8 * found.log_n


def test_fixed_weights_have_the_covariance_of_sampling() -> None:
    """Logits of scale 0 make every weight 1 / n, whatever the data: both covariances are one."""
    root = torch.randn(6, 6, generator=seeded(1), dtype=torch.float64)
    zero = torch.zeros(2, 2, dtype=torch.float64)
    found = data_dependence(torch.ones(3, 2).double(), root @ root.mT, zero, 100_000, seeded(2))
    assert found.difference < 0.02
    average = torch.kron(torch.full((3, 3), 1 / 3, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
    np.testing.assert_allclose(found.fixed, average @ root @ root.mT @ average.mT, atol=1e-12)


def test_weights_that_follow_the_data_change_the_covariance() -> None:
    mean = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, 1.0]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    differences = [
        data_dependence(mean, torch.eye(6).double(), size * eye, 50_000, seeded(3)).difference
        for size in (0.001, 0.1, 1.0)
    ]
    assert differences[0] < 0.03 < 0.2 < differences[1]
    assert differences[2] > 0.2


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pattern_rank(torch.full((2, 2), 0.4)), ArgumentError, "sum to 1, found sums off by 0.2"),
        (lambda: pattern_rank(torch.full((2, 2), math.nan)), DegenerateSubspace, "found 4 NaN"),
        (lambda: energy_rank(torch.eye(2), 0.0), ArgumentError, r"in \(0, 1\], found 0"),
        (lambda: random_pattern(0, 4, seeded(0)), ArgumentError, "found 0 and 4"),
        (
            lambda: data_dependence(torch.ones(1, 1), -torch.eye(1), torch.eye(1), 9, seeded(0)),
            ArgumentError,
            "found -1",
        ),
        (lambda: data_dependence(torch.ones(1, 1), torch.eye(1), torch.eye(1), 1, seeded(0)), ArgumentError, "2 draws"),
    ],
)
def test_bad_input_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
