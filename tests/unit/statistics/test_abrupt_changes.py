"""An abrupt change is found where it was put; lines, smooth curves and drifting walks have none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from docs.calibration.change_points import SMOOTH, p_values, rates
from headspan.statistics import change_points

PLACES = np.arange(24.0)
T = PLACES / PLACES[-1]


@pytest.mark.parametrize("n", [9, 24, 60])
@pytest.mark.parametrize("shape", SMOOTH)
def test_a_smooth_curve_does_not_change(shape: str, n: int) -> None:
    t = np.linspace(0, 1, n)
    for curve in (SMOOTH[shape](t), 5 - 3 * SMOOTH[shape](t), SMOOTH[shape](t)[::-1] + 2 * t):
        found = change_points(curve[None], t)
        assert found["p_value"][0] > 0.2
        assert np.isnan(found["change"][0])


def test_false_changes_are_as_rare_as_stated() -> None:
    """A test against walks without drift calls most drifting walks and all smooth curves a change."""
    for row in rates(seed=1, draws=1500):
        assert row["low"] <= 1.1 * row["level"] + 2e-4, row
        if row["null"] in ("own null", "random walk, drift of 1 sd a step") and row["level"] > 0.001:
            assert row["high"] >= row["level"], row


@pytest.mark.parametrize("width", [1e-4, 0.02, 0.05])
def test_a_step_is_found_on_a_trend_and_its_interval_holds_it(width: float) -> None:
    random = np.random.default_rng(0)
    curves = expit((T - 0.55) / width) - 0.5 * T + 0.02 * random.normal(size=(40, len(T)))
    found = change_points(curves, PLACES)
    assert (found["p_value"] <= 0.01).all()
    assert (found["kind"] == "level").all()
    assert np.abs(found["change"] - 0.55 * 23).max() < 1
    assert ((found["low"] - 0.5 <= 0.55 * 23) & (found["high"] + 0.5 >= 0.55 * 23)).mean() > 0.9


def test_a_kink_is_a_change_of_slope() -> None:
    found = change_points((np.maximum(T - 0.5, 0) + 0.3 * T)[None], PLACES)
    assert found["p_value"][0] < 0.01
    assert found["kind"][0] == "slope"
    assert found["change"][0] == pytest.approx(11.5, abs=0.3)


def test_a_drift_or_a_scale_changes_nothing() -> None:
    walks = np.random.default_rng(5).normal(size=(50, 24)).cumsum(1)
    np.testing.assert_allclose(p_values(walks), p_values(-7 * walks + 1000 - 40 * PLACES))


def test_gaps_are_left_out_and_constants_and_short_curves_have_no_test() -> None:
    step = expit((T - 0.5) / 0.01)
    gaps = np.where(np.isin(PLACES, [3, 20]), np.nan, step)
    found = change_points(np.stack([gaps, np.ones(24), np.where(PLACES < 7, T, np.nan)]), PLACES)
    assert found["change"][0] == pytest.approx(11.5, abs=0.5)
    assert np.isnan(found["p_value"][1:]).all()
