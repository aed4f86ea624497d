"""Change points: found where they were put, with intervals that cover, and refused where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from headspan.errors import HeadspanError
from headspan.lab.study import halfway, lag, lags_over_seeds, transition
from headspan.statistics import ChangePoint, change_point, mean_interval

STEPS = np.arange(0, 4001, 50.0)


def curve(at: float, width: float = 80.0, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return 0.02 + 0.95 / (1 + np.exp(-(STEPS - at) / width)) + noise * random.standard_normal(len(STEPS))


def test_a_step_is_found_where_it_is() -> None:
    found = change_point(STEPS, curve(1234.0))
    assert found.step == pytest.approx(1234.0, abs=0.01)
    assert (found.before, found.after, found.width) == pytest.approx((0.02, 0.97, 80.0), rel=1e-3)
    assert found.explained == pytest.approx(1.0)


def test_a_fall_is_found_as_well_as_a_rise() -> None:
    assert change_point(STEPS, 1 - curve(2000.0)).step == pytest.approx(2000.0, abs=0.01)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    found = [change_point(STEPS, curve(1500.0, noise=0.05, seed=seed), draws=60) for seed in range(30)]
    covered = sum(one.low <= 1500.0 <= one.high for one in found)
    assert covered >= 23  # of 30 at 95 %: 22 or fewer has probability 2e-5; short bootstraps cover a little less
    assert all(one.high - one.low < 60 for one in found)


def test_noise_and_constants_have_no_change_point() -> None:
    assert not change_point(STEPS, np.random.default_rng(0).standard_normal(len(STEPS))).found
    assert not change_point(STEPS, np.ones(len(STEPS))).found
    assert not change_point(STEPS[:5], STEPS[:5]).found


def test_a_rise_too_small_to_be_learning_is_no_transition() -> None:
    assert not transition(STEPS, 0.1 * curve(1500.0)).found
    assert transition(STEPS, curve(1500.0), draws=0).found


def test_rows_that_were_not_measured_are_left_out() -> None:
    values = curve(1500.0)
    values[::2] = np.nan
    assert change_point(STEPS, values, draws=0).step == pytest.approx(1500.0, abs=0.1)


def test_what_comes_first_has_a_negative_lag() -> None:
    at = transition(STEPS, curve(1500.0), draws=0)
    assert lag(STEPS, curve(1300.0), at) == pytest.approx(-200.0, abs=1.0)
    assert lag(STEPS, 2 - curve(1600.0), at) == pytest.approx(100.0, abs=2.0)
    assert np.isnan(lag(STEPS, np.zeros(len(STEPS)), at))


def test_a_quantity_that_turns_round_later_is_timed_by_its_first_step() -> None:
    at = transition(STEPS, curve(1500.0), draws=0)
    overshooting = curve(1450.0) - 0.6 * curve(3200.0)
    assert lag(STEPS, overshooting, at) == pytest.approx(-50.0, abs=5.0)


def test_the_mean_over_seeds_has_students_interval() -> None:
    values = [1.0, 2.0, 4.0, float("nan")]
    mean, low, high = mean_interval(values)
    from scipy.stats import t

    half = t.ppf(0.975, 2) * np.std([1, 2, 4], ddof=1) / 3**0.5
    assert (mean, low, high) == pytest.approx((7 / 3, 7 / 3 - half, 7 / 3 + half))
    assert mean_interval([3.0])[0] == 3.0
    assert np.isnan(mean_interval([3.0])[1])
    assert lags_over_seeds([{"a": 1.0}, {"a": 3.0}])["a"][0] == 2.0
    with pytest.raises(HeadspanError, match="need at least one run"):
        lags_over_seeds([])


def test_the_halfway_point_of_a_sparse_curve_is_read_off_between_its_rows() -> None:
    at = ChangePoint(1_000.0, 950.0, 1_050.0, 50.0, 0.0, 1.0, 0.99)
    step, sharpness = np.array([0.0, 500, 1000, 1500, 2000]), np.array([9.0, 2, 2, 3, 6])
    assert halfway(step, sharpness, at) == pytest.approx(1_500 + 500 / 3 - 1_000)  # half-way from 2 to 6 is 4
    gaps = np.array([9.0, np.nan, 2, np.nan, 6])
    assert halfway(step, gaps, at) == pytest.approx(500.0)
    assert np.isnan(halfway(step, np.full(5, 2.0), at))
    assert np.isnan(halfway(step[:3], sharpness[:3], at)), "nothing was measured after the transition"
