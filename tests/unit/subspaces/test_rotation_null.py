"""The law of an overlap under a random rotation that keeps both spectra."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headspan.errors import ArgumentError
from headspan.subspaces import kernel_null_variance, random_subspaces, upper_tail
from headspan.subspaces.nulls import energy_shares, log_rotation_tail, rotation_variance


def sampled_overlaps(a: torch.Tensor, b: torch.Tensor, d: int, draws: int) -> torch.Tensor:
    """C^2 of diag(sqrt a) against a randomly turned diag(sqrt b), by its definition."""
    Q = random_subspaces((draws,), d, d, seed=1).basis
    corner = Q[:, : a.shape[-1], : b.shape[-1]]
    return torch.einsum("i,j,nij->n", a, b, corner.square())


@pytest.mark.parametrize(("p", "q", "d"), [(3, 3, 12), (4, 2, 9), (8, 8, 12), (1, 5, 20)])
def test_moments_and_tail_match_sampling(p: int, q: int, d: int) -> None:
    a = energy_shares(torch.rand(1, p, dtype=torch.float64) + 0.1)
    b = energy_shares(torch.rand(1, q, dtype=torch.float64) + 0.1)
    drawn = sampled_overlaps(a[0], b[0], d, 40_000)
    error = drawn.std() / 200
    assert abs(float(drawn.mean()) - 1 / d) < 4 * float(error)
    assert float(drawn.var()) == pytest.approx(float(rotation_variance(a, b, d)), rel=0.05)
    for level in (0.5, 0.1, 0.01):
        cut = drawn.quantile(1 - level)
        assert float(log_rotation_tail(cut.reshape(1, 1), a, b, d).exp()) == pytest.approx(level, rel=0.25)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(13, 40))
def test_flat_spectra_give_the_law_of_the_projection_kernel(p: int, q: int, d: int) -> None:
    a, b = torch.full((1, p), 1 / p, dtype=torch.float64), torch.full((1, q), 1 / q, dtype=torch.float64)
    assert float(rotation_variance(a, b, d)) == pytest.approx(float(kernel_null_variance(p, q, d)) / (p * q) ** 2)
    kernel = torch.tensor([[0.7 * min(p, q)]], dtype=torch.float64)
    ours = log_rotation_tail(kernel / (p * q), a, b, d).exp()
    assert float(ours) == pytest.approx(float(upper_tail(kernel, p, q, d)), rel=1e-6)


def test_a_zero_circuit_has_no_law() -> None:
    a, b = energy_shares(torch.zeros(1, 3, dtype=torch.float64)), energy_shares(torch.ones(2, 3, dtype=torch.float64))
    assert a.isnan().all()
    assert log_rotation_tail(torch.full((1, 2), 0.1, dtype=torch.float64), a, b, 10).isnan().all()


def test_one_dimension_cannot_be_rotated() -> None:
    with pytest.raises(ArgumentError, match="a rotation needs at least 2 dimensions, found 1"):
        rotation_variance(torch.ones(1, 1), torch.ones(1, 1), 1)
