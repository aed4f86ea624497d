"""Chance laws: exact cases, sampling, far tails, degenerate dimensions; and the sampler of random angles."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch

from headspan.errors import ArgumentError
from headspan.statistics import log_betainc
from headspan.subspaces import (
    angle_null,
    kernel_null_mean,
    kernel_null_variance,
    log_lower_tail,
    log_upper_tail,
    lower_tail,
    random_principal_angles,
    upper_tail,
)


def kernels(d: int, p: int, q: int, draws: int, seed: int = 0) -> torch.Tensor:
    return (random_principal_angles(d, p, q, draws, seed).cos() ** 2).sum(-1)


def test_gpt2_small_has_mean_5_3333_and_sd_0_10796_by_chance() -> None:
    """Golden: shared/reference/affinity.md, from arXiv 2601.10266."""
    assert float(kernel_null_mean(64, 64, 768)) == pytest.approx(5.3333, abs=5e-5)
    assert float(kernel_null_variance(64, 64, 768)) ** 0.5 == pytest.approx(0.10796, abs=5e-6)


@pytest.mark.parametrize(("p", "q", "d"), [(1, 1, 2), (2, 3, 7), (5, 5, 9), (8, 8, 64), (6, 6, 7), (9, 2, 10)])
def test_moments_are_those_of_samples(p: int, q: int, d: int) -> None:
    sample = kernels(d, p, q, 40000)
    assert float(sample.mean()) == pytest.approx(float(kernel_null_mean(p, q, d)), abs=4 * float(sample.std()) / 200)
    assert float(sample.var()) == pytest.approx(float(kernel_null_variance(p, q, d)), rel=0.04)


@pytest.mark.parametrize(("q", "d"), [(1, 2), (3, 10), (64, 768), (9, 10)])
def test_one_dimension_has_the_exact_beta_law(q: int, d: int) -> None:
    """A unit vector's squared length in a random q-dimensional subspace is Beta(q/2, (d - q)/2)."""
    t = torch.linspace(0.01, 0.99, 33, dtype=torch.float64)
    exact = scipy.stats.beta(q / 2, (d - q) / 2)
    for p_, q_ in ((1, q), (q, 1)):
        for ours, theirs in ((log_upper_tail, exact.logsf), (log_lower_tail, exact.logcdf)):
            naive = theirs(t.numpy())
            # scipy gives -Inf below 1e-308, where ours goes on.
            seen = np.isfinite(naive)
            log_p = ours(t, p_, q_, d).numpy()
            np.testing.assert_allclose(log_p[seen], naive[seen], rtol=1e-9, atol=1e-15)
            assert bool(np.isfinite(log_p).all())


@pytest.mark.parametrize(("q", "d"), [(1, 4), (3, 10)])
def test_the_complement_of_a_line_has_the_exact_law_too(q: int, d: int) -> None:
    t = torch.linspace(q - 1 + 0.01, q - 0.01, 21, dtype=torch.float64)
    exact = scipy.stats.beta(q / 2, (d - q) / 2)
    np.testing.assert_allclose(lower_tail(t, d - 1, q, d).numpy(), exact.sf(q - t.numpy()), rtol=1e-9)


@pytest.mark.parametrize(
    ("a", "b", "x"), [(2119.0, 192.0, 0.5), (2119.0, 192.0, 1e-4), (30.0, 400.0, 1e-13), (9e3, 9e2, 0.5)]
)
def test_log_tails_are_right_where_the_tails_themselves_vanish(a: float, b: float, x: float) -> None:
    with mpmath.workdps(60):
        exact = mpmath.log(mpmath.betainc(a, b, 0, x, regularized=True))
        assert exact < -745
        ours = log_betainc(*(np.array([v]) for v in (x, 1 - x, a, b)))[0]
        assert abs(ours - float(exact)) < 1e-11 * abs(float(exact))


def test_log_tails_join_smoothly_where_the_method_changes() -> None:
    t = torch.linspace(9.0, 11.0, 400, dtype=torch.float64)
    log_p = log_upper_tail(t, 64, 64, 768)
    assert float(log_p[0]) > math.log(1e-280) > float(log_p[-1])
    curvature = log_p.diff().diff()
    assert float(curvature.max()) < 0
    assert float(curvature.abs().max() / curvature.abs().min()) < 1.5


@pytest.mark.parametrize("level", [1e-2, 1e-3])
@pytest.mark.parametrize(("p", "q", "d"), [(8, 8, 64), (4, 12, 32), (16, 16, 64)])
def test_upper_tail_probabilities_hold_in_samples(p: int, q: int, d: int, level: float) -> None:
    sample = kernels(d, p, q, 100_000)
    cut = torch.quantile(sample, 1 - level)
    assert float(upper_tail(cut, p, q, d)) == pytest.approx(level, rel=0.35)
    assert float(lower_tail(torch.quantile(sample, level), p, q, d)) == pytest.approx(level, rel=0.35)


def test_at_one_in_ten_thousand_the_upper_tail_is_right_and_the_lower_too_small() -> None:
    sample = kernels(16, 4, 4, 400_000)
    assert float(upper_tail(torch.quantile(sample, 1 - 1e-4, interpolation="nearest"), 4, 4, 16)) > 1.1e-4
    assert 1e-5 < float(lower_tail(torch.quantile(sample, 1e-4, interpolation="nearest"), 4, 4, 16)) < 6e-5


@pytest.mark.parametrize(
    ("kernel", "truth"), [(6.0, -20.633), (8.0, -247.921), (10.0, -664.674), (12.0, -1223.506), (20.0, -4481.157)]
)
def test_far_upper_tails_of_gpt2s_shape_are_conservative(kernel: float, truth: float) -> None:
    """Golden: saddlepoint with a Laplace approximation over the eigenvalues of the Jacobi ensemble, whose tilted means
    agree with Hamiltonian Monte Carlo to its error (three digits); a normal law gives -309 at 8."""
    log_p = float(log_upper_tail(torch.tensor(kernel, dtype=torch.float64), 64, 64, 768))
    assert truth < log_p < 0.92 * truth


def test_far_lower_tails_of_gpt2s_shape_are_slightly_anti_conservative() -> None:
    log_p = float(log_lower_tail(torch.tensor(4.3, dtype=torch.float64), 64, 64, 768))
    assert -54.722 * 1.02 < log_p < -54.722


def test_p_values_are_uniform_by_chance() -> None:
    p_values = upper_tail(kernels(48, 6, 9, 20000), 6, 9, 48)
    assert scipy.stats.kstest(p_values.numpy(), "uniform").pvalue > 1e-3
    torch.testing.assert_close(p_values + lower_tail(kernels(48, 6, 9, 20000), 6, 9, 48), torch.ones(20000).double())


@pytest.mark.parametrize(("p", "q", "d"), [(7, 6, 10), (10, 3, 12), (5, 5, 6)])
def test_tails_respect_the_support_when_the_dimensions_force_an_overlap(p: int, q: int, d: int) -> None:
    low, high = max(0, p + q - d), min(p, q)
    t = torch.tensor([low - 0.5, low, high, high + 0.5], dtype=torch.float64)
    torch.testing.assert_close(upper_tail(t, p, q, d), torch.tensor([1.0, 1, 0, 0], dtype=torch.float64))
    torch.testing.assert_close(lower_tail(t, p, q, d), torch.tensor([0.0, 0, 1, 1], dtype=torch.float64))
    sample = kernels(d, p, q, 20000)
    assert low <= float(sample.min()) <= float(sample.max()) <= high
    cut = torch.quantile(sample, 0.9)
    assert float(upper_tail(cut, p, q, d)) == pytest.approx(0.1, abs=0.02)


def test_a_whole_space_leaves_nothing_to_chance() -> None:
    assert float(kernel_null_variance(8, 3, 8)) == 0
    t = torch.tensor([2.9, 3.0, 3.0 + 1e-12, 3.1], dtype=torch.float64)
    assert upper_tail(t, 8, 3, 8).tolist() == [1, 1, 1, 0]
    assert lower_tail(t, 3, 8, 8).tolist() == [0, 1, 1, 1]
    assert float(kernel_null_variance(1, 1, 1)) == 0


def test_rank_zero_and_nan_stay_undefined() -> None:
    p = torch.tensor([0, 2, 2])
    kernel = torch.tensor([0.5, torch.nan, 0.5])
    assert kernel_null_mean(p, 2, 8).isnan().tolist() == [True, False, False]
    assert upper_tail(kernel, p, 2, 8).isnan().tolist() == [True, True, False]


def test_dimensions_broadcast_over_arrays() -> None:
    p, q = torch.tensor([[1], [2], [8]]), torch.tensor([3, 4])
    table = log_upper_tail(torch.tensor(0.7), p, q, 8)
    assert table.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            one = log_upper_tail(torch.tensor(0.7), int(p[i]), int(q[j]), 8)
            torch.testing.assert_close(table[i, j], one)
    assert log_upper_tail(torch.zeros(0), 2, 2, 8).shape == (0,)


def test_impossible_dimensions_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"0 <= p, q <= d and d >= 1, found p in \[9, 9\]"):
        kernel_null_mean(9, 1, 8)
    with pytest.raises(ArgumentError, match="draws >= 1"):
        random_principal_angles(8, 0, 1, 5)
    with pytest.raises(ArgumentError, match="at least 2 draws"):
        angle_null(8, 2, 2, draws=1)


def test_the_seed_fixes_the_angles_and_the_cache_cannot_be_spoiled() -> None:
    first = random_principal_angles(12, 3, 4, 5, seed=7)
    kept = first.clone()
    first.zero_()
    assert torch.equal(random_principal_angles(12, 3, 4, 5, seed=7), kept)
    assert torch.equal(random_principal_angles(12, 4, 3, 5, seed=7), kept)
    assert not torch.equal(random_principal_angles(12, 3, 4, 5, seed=8), kept)


def test_random_angles_ascend_and_have_the_forced_zeros() -> None:
    theta = random_principal_angles(10, 8, 6, 100)
    assert theta.shape == (100, 6)
    assert bool((theta[:, :4] == 0).all())
    assert float(theta[:, 4:].min()) > 0
    assert bool((theta.diff() >= 0).all())
    assert bool((random_principal_angles(6, 6, 4, 3) == 0).all())


def test_a_random_line_and_hyperplane_have_the_angle_of_geometry() -> None:
    """In R^3 a line's height over a plane is uniform on the sphere (Archimedes): E[sin theta] = 1/2."""
    theta = random_principal_angles(3, 1, 2, 200_000)
    assert float(theta.sin().mean()) == pytest.approx(0.5, abs=0.003)


def test_angle_chance_is_the_summary_of_its_draws() -> None:
    chance = angle_null(20, 3, 4, draws=100, seed=3)
    theta = random_principal_angles(20, 3, 4, 100, seed=3)
    torch.testing.assert_close(chance.angle_mean, theta.mean(0))
    torch.testing.assert_close(chance.angle_sd, theta.std(0))
    lengths = torch.linalg.vector_norm(theta, dim=-1)
    assert (chance.grassmann_mean, chance.grassmann_sd) == (
        pytest.approx(float(lengths.mean())),
        pytest.approx(float(lengths.std())),
    )
    assert angle_null(20, 3, 4, draws=100, seed=3) is chance
