"""Tails and counted p-values against SciPy and against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headspan.statistics import empirical_p_value, log_beta_tail, mean_interval, prediction_tail, quantile_interval
from headspan.statistics.draw_tails import upper_p_values


def test_the_tail_of_a_beta_law_on_an_interval_is_scipys() -> None:
    law = stats.beta(2.5, 4.0, loc=-1.0, scale=3.0)
    value = np.linspace(-0.9, 1.9, 7)
    for upper, tail in ((True, law.logsf), (False, law.logcdf)):
        found = log_beta_tail(value, law.mean(), law.var(), -1.0, 2.0, upper)
        np.testing.assert_allclose(found, tail(value), rtol=1e-9)


def test_no_law_has_no_tail() -> None:
    assert np.isnan(log_beta_tail(np.array([0.5, np.nan]), 0.5, np.array([0.0, 0.1]), 0.0, 1.0)).all()
    assert np.isnan(log_beta_tail(0.5, 0.5, 0.3, 0.0, 1.0)), "more variance than the two ends have"


def test_one_more_draw_of_a_normal_law_is_uniform_under_its_prediction() -> None:
    drawn = np.random.default_rng(0).normal(size=(4000, 6))
    z = (drawn[:, 0] - drawn[:, 1:].mean(1)) / drawn[:, 1:].std(1, ddof=1)
    assert stats.kstest(prediction_tail(z, 5), "uniform").pvalue > 0.01
    assert prediction_tail(1.0, 5) == pytest.approx(stats.t.sf(1 / np.sqrt(1.2), 4))


def test_one_more_draw_of_a_skewed_law_is_uniform_where_its_skewness_is_told() -> None:
    drawn = np.random.default_rng(0).gamma(16, size=(60000, 17))  # skewness 1/2
    z = (drawn[:, 0] - drawn[:, 1:].mean(1)) / drawn[:, 1:].std(1, ddof=1)
    assert (prediction_tail(z, 16) <= 0.01).mean() > 0.017, "as a normal law would have it"
    assert (prediction_tail(z, 16, 0.5) <= 0.01).mean() == pytest.approx(0.01, abs=0.002)
    far = prediction_tail(np.array([3.0, 30.0, 300.0, np.nan]), 16, 0.5)
    assert far[0] > far[1] > far[2] > 0
    assert np.isnan(far[3])


@pytest.mark.parametrize("draws", [60, 200])
def test_p_values_from_few_draws_keep_their_levels(draws: int) -> None:
    random = np.random.default_rng(0)
    for law in (random.exponential, random.normal, random.gumbel):
        p = np.concatenate([upper_p_values(law(size=40), law(size=draws)) for _ in range(1500)])
        for level in (0.05, 0.01):
            assert (p <= level).mean() < 1.12 * level, (law.__name__, level)
        assert (p <= 0.001).mean() < 0.0012, law.__name__


def test_an_empirical_p_value_counts_draws_and_ties() -> None:
    null = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    np.testing.assert_allclose(empirical_p_value(np.array([2.0, 6.0]), null), [3 / 4, 1 / 4])
    assert empirical_p_value(3.0 + 1e-13, null[:, 0], slack=1e-12) == pytest.approx(2 / 4)


def test_intervals_leave_undefined_draws_out() -> None:
    drawn = np.append(np.linspace(0, 1, 101), np.nan)
    np.testing.assert_allclose(quantile_interval(drawn), (0.025, 0.975))
    assert np.isnan(quantile_interval([])).all()
    assert mean_interval([2.0])[0] == 2.0
