"""Quadratic forms under random rotations: moments, support, tails."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headspan.subspaces import kernel_null_mean, kernel_null_variance, log_upper_tail, random_subspaces
from headspan.subspaces.nulls import rotated_trace_log_tail, rotated_trace_moments

D = 12


def rotations(count: int, seed: int = 0) -> np.ndarray:
    return random_subspaces((count,), D, D, seed).basis.numpy()


def drawn(a: np.ndarray, b: np.ndarray, count: int) -> np.ndarray:
    """tr(A R B R^T) for diagonal A and B, by its definition."""
    R = rotations(count)
    return np.einsum("i,nij,j,nij->n", a, R, b, R)


def test_moments_are_those_of_drawn_rotations() -> None:
    a, b = 1.0 / np.arange(1, D + 1) ** 2, (np.arange(D) < 3).astype(float)
    values = drawn(a, b, 40_000)
    mean, sd = rotated_trace_moments(a.sum(), (a**2).sum(), b.sum(), (b**2).sum(), D)
    assert abs(values.mean() - mean) < 4 * sd / 200
    # The standard error of a standard deviation of 40,000 draws is about sd / sqrt(2 n), kurtosis of 3 taken as 9.
    assert abs(values.std() - sd) < 4 * sd * np.sqrt(2 / 40_000)


@given(st.integers(1, 20), st.integers(1, 20))
def test_two_projectors_give_the_moments_of_the_projection_kernel(p: int, q: int) -> None:
    mean, sd = rotated_trace_moments(*(np.array(float(n)) for n in (p, p, q, q)), 20)
    assert mean == pytest.approx(float(kernel_null_mean(p, q, 20)))
    assert sd == pytest.approx(float(kernel_null_variance(p, q, 20).sqrt()), abs=1e-12)


def test_tails_of_two_projectors_are_those_of_the_projection_kernel() -> None:
    value = np.array([2.0, 3.0, 4.5])
    mean, sd = rotated_trace_moments(*(np.array(float(n)) for n in (6, 6, 7, 7)), 20)
    found = rotated_trace_log_tail(value, mean, sd, np.array(0.0), np.array(6.0), upper=True)
    np.testing.assert_allclose(found, log_upper_tail(torch.as_tensor(value), 6, 7, 20), rtol=1e-10)


def test_a_tail_of_one_percent_is_reached_by_about_one_percent_of_rotations() -> None:
    a, b = 1.0 / np.arange(1, D + 1), (np.arange(D) < 3).astype(float)
    values = drawn(a, b, 40_000)
    mean, sd = rotated_trace_moments(a.sum(), (a**2).sum(), b.sum(), (b**2).sum(), D)
    low, high = np.array(a[-3:].sum()), np.array(a[:3].sum())
    for upper in (True, False):
        p = np.exp(rotated_trace_log_tail(values, mean, sd, low, high, upper))
        assert 0.002 < (p < 0.01).mean() < 0.02
        assert abs((p < 0.5).mean() - 0.5) < 0.05


def test_an_identity_leaves_nothing_to_chance() -> None:
    mean, sd = rotated_trace_moments(*(np.array(float(n)) for n in (D, D, 3, 3)), D)
    assert (float(mean), float(sd)) == (3.0, 0.0)
    assert rotated_trace_log_tail(np.array([3.0]), mean, sd, np.array(3.0), np.array(3.0), upper=True) == 0.0
    assert np.isnan(rotated_trace_log_tail(np.array([np.nan]), mean, sd, np.array(0.0), np.array(3.0), upper=True))
