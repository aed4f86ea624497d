"""Quadratic forms under random rotations: moments, support, tails."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from docs.calibration.composition_score import decaying, rates, rotated_p_values, squared_corners
from headspan.subspaces import kernel_null_mean, kernel_null_variance, log_upper_tail, random_subspaces
from headspan.subspaces.nulls import rotated_trace_log_tail, rotated_trace_moments
from headspan.subspaces.zonal_moments import rotated_trace_central_moments

D = 12


def drawn(a: np.ndarray, b: np.ndarray, count: int) -> np.ndarray:
    """tr(A R B R^T) for diagonal A and B, by its definition."""
    R = random_subspaces((count,), D, D, 0).basis.numpy()
    return np.einsum("i,nij,j,nij->n", a, R[:, : len(a), : len(b)], b, R[:, : len(a), : len(b)])


@pytest.mark.parametrize(("p", "q"), [(12, 3), (5, 4), (1, 7)])
def test_moments_are_those_of_drawn_rotations(p: int, q: int) -> None:
    a, b = 1.0 / np.arange(1, p + 1) ** 2, 1.0 / np.arange(1, q + 1)
    values = drawn(a, b, 40_000)
    mean, sd = rotated_trace_moments(a.sum(), (a**2).sum(), b.sum(), (b**2).sum(), D)
    assert abs(values.mean() - mean) < 4 * sd / 200
    for power, moment in enumerate(rotated_trace_central_moments(a[None], b[None], D), start=2):
        parts = (values - mean) ** power
        assert abs(parts.mean() - moment[0, 0]) < 4 * parts.std() / 200
    assert moment_of(a, b) == pytest.approx(sd**2)


def moment_of(a: np.ndarray, b: np.ndarray) -> float:
    return float(rotated_trace_central_moments(a[None], b[None], D)[0][0, 0])


def test_the_moments_of_a_single_direction_are_those_of_its_beta_law() -> None:
    k, d = 5, 14
    law = stats.beta(k / 2, (d - k) / 2)
    second, third, fourth = rotated_trace_central_moments(np.ones((1, 1)), np.ones((1, k)), d)
    skewness, excess = law.stats(moments="sk")
    assert second[0, 0] == pytest.approx(law.var())
    assert third[0, 0] == pytest.approx(skewness * law.var() ** 1.5)
    assert fourth[0, 0] == pytest.approx((excess + 3) * law.var() ** 2)


@given(st.integers(1, 20), st.integers(1, 20))
def test_two_projectors_give_the_moments_of_the_projection_kernel(p: int, q: int) -> None:
    mean, sd = rotated_trace_moments(*(np.array(float(n)) for n in (p, p, q, q)), 20)
    assert mean == pytest.approx(float(kernel_null_mean(p, q, 20)))
    assert sd == pytest.approx(float(kernel_null_variance(p, q, 20).sqrt()), abs=1e-12)


@given(st.integers(2, 3), st.data())
def test_two_or_three_dimensions_have_moments_too(d: int, data: st.DataObject) -> None:
    p, q = data.draw(st.integers(1, d)), data.draw(st.integers(1, d))
    second, _, fourth = rotated_trace_central_moments(
        1 / np.arange(1.0, p + 1)[None], 1 / np.arange(1.0, q + 1)[None], d
    )
    assert fourth[0, 0] >= (1 - 1e-9) * second[0, 0] ** 2 >= 0


def test_tails_of_two_projectors_are_those_of_the_projection_kernel() -> None:
    value = np.array([[2.0, 3.0, 4.5]])
    found = rotated_trace_log_tail(value, np.ones((1, 6)), np.ones((3, 7)), 20)
    np.testing.assert_allclose(found[0], log_upper_tail(torch.as_tensor(value[0]), 6, 7, 20), rtol=1e-10)


def test_nearly_flat_spectra_have_nearly_the_tails_of_the_projection_kernel() -> None:
    near = np.arange(1, 17) ** -0.01
    kernel = np.array([[1.6, 1.8, 2.0]])
    found = rotated_trace_log_tail(kernel * near.sum() ** 2 / 256, near[None], np.tile(near, (3, 1)), 192)
    np.testing.assert_allclose(found[0], log_upper_tail(torch.as_tensor(kernel[0]), 16, 16, 192), rtol=0.03)


def test_p_values_of_decaying_spectra_hold_their_level_far_out() -> None:
    """Within a factor 2 at 1e-4, up to four standard errors of the count. Two moments give 15 times for i^-1."""
    for row in rates(seed=0, draws=30_000):
        expected = row["level"] * row["n"]
        slack = 4 * (2 * expected) ** 0.5
        factor = {0.05: 1.1, 0.01: 1.15, 0.001: 1.5}.get(row["level"], 2)
        assert expected / factor - slack < row["rate"] * row["n"] < expected * factor + slack, row


@pytest.mark.slow
def test_p_values_of_gpt2s_own_spectra_hold_their_level(gpt2_attention: object) -> None:
    import headspan
    from headspan.subspaces.factored import Factored
    from headspan.subspaces.nulls import energy_shares

    heads = headspan.open(gpt2_attention).heads(dtype=torch.float64)
    circuits = Factored(heads.W_V, heads.W_O.mT), Factored(heads.W_Q, heads.W_K)
    spectra = [energy_shares(circuit.singular_values().flatten(0, 1)) for circuit in circuits]
    by_spread = [each[each.square().sum(-1).argsort(descending=True)[[0, 40, 100]]].numpy() for each in spectra]
    random = np.random.default_rng(0)
    squares = np.concatenate([squared_corners(2_000, 64, 64, 768, random) for _ in range(20)])
    for a in by_spread[0]:
        for b in by_spread[1]:
            p = rotated_p_values(np.einsum("i,nij,j->n", a, squares, b, optimize=True), a[None], b[None], 768)
            for level, most in ((0.05, 1.1), (0.01, 1.2), (0.001, 1.5), (0.0001, 2)):
                assert (p < level).sum() < most * level * len(p) + 4 * (most * level * len(p)) ** 0.5


@pytest.mark.parametrize("upper", [True, False])
def test_a_tail_of_one_percent_is_reached_by_about_one_percent_of_rotations(upper: bool) -> None:
    a, b = 1.0 / np.arange(1, D + 1), (np.arange(D) < 3).astype(float)
    p = rotated_p_values(drawn(a, b, 40_000), a[None], b[None], D, upper)
    assert 0.007 < (p < 0.01).mean() < 0.013
    assert abs((p < 0.5).mean() - 0.5) < 0.02


def test_both_tails_add_up_to_one() -> None:
    a, b = decaying(0.7), decaying(1.5)
    values = np.linspace(0.001, 0.02, 50)
    above, below = (rotated_p_values(values, a, b, 192, upper) for upper in (True, False))
    np.testing.assert_allclose(above + below, 1, atol=1e-9)
    assert (np.diff(above) < 0).all()


def test_the_logarithm_stays_finite_to_the_end_of_the_support() -> None:
    a = decaying(0.5, 64)
    high = float((a * a).sum())
    shares = np.array([0.3, 0.9, 0.999999])
    found = rotated_trace_log_tail(shares[None] * high, a, np.tile(a, (3, 1)), 768)[0]
    assert np.isfinite(found).all()
    assert (np.diff(found) < 0).all()
    assert found[-1] < -10_000
    assert rotated_trace_log_tail(np.array([[high]]), a, a, 768)[0, 0] == -np.inf


def test_a_table_of_all_heads_takes_well_under_a_second() -> None:
    spectra = np.sort(np.random.default_rng(0).random((144, 64)))[:, ::-1]
    spectra = spectra / spectra.sum(-1, keepdims=True)
    start = time.process_time()
    rotated_trace_log_tail(np.full((144, 144), 1.5 / 768), spectra, spectra, 768)
    assert time.process_time() - start < 0.8


def test_an_identity_leaves_nothing_to_chance() -> None:
    mean, sd = rotated_trace_moments(*(np.array(float(n)) for n in (D, D, 3, 3)), D)
    assert (float(mean), float(sd)) == (3.0, 0.0)
    whole, some = np.ones((1, D)), np.array([[3.0, 2.0, 1.0]])
    assert rotated_trace_log_tail(np.array([[6.0]]), whole, some, D) == 0.0
    assert np.isnan(rotated_trace_log_tail(np.array([[np.nan]]), whole, some, D))
