"""Empirical nulls, false-discovery control and intervals, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from docs.calibration.direction import rates as direction_rates
from headspan.statistics import (
    bootstrap_mean_interval,
    direction_test,
    kl_from_normal,
    q_values,
    reverse_order_p_values,
)


def table(layers: int = 4, heads: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(layers, heads, layers, heads))


def test_reverse_order_p_values_are_their_definition() -> None:
    scores, layers = table(), np.array([0, 1, 2, 5])
    found = reverse_order_p_values(scores, layers)
    for i, src in enumerate(layers):
        for j, dst in enumerate(layers):
            if src >= dst:
                assert np.isnan(found[i, :, j, :]).all()
                continue
            null = np.concatenate(
                [
                    scores[a, :, b, :].ravel()
                    for a, x in enumerate(layers)
                    for b, y in enumerate(layers)
                    if x - y == dst - src
                ]
            )
            for h in range(3):
                for k in range(3):
                    expected = (1 + (null >= scores[i, h, j, k]).sum()) / (1 + null.size)
                    assert found[i, h, j, k] == pytest.approx(expected)


def test_an_undefined_score_has_no_p_value_and_counts_for_no_other() -> None:
    scores, layers = table(), np.arange(4)
    scores[:, 1], scores[:, :, :, 1] = np.nan, np.nan
    found = reverse_order_p_values(scores, layers)
    assert np.isnan(found[:, 1]).all()
    clean = np.delete(np.delete(scores, 1, axis=1), 1, axis=3)
    expected = reverse_order_p_values(clean, layers)
    np.testing.assert_allclose(np.delete(np.delete(found, 1, axis=1), 1, axis=3), expected)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_q_values_are_benjamini_and_hochbergs(p_values: list[float]) -> None:
    p = np.array(p_values)
    order = np.argsort(p)
    expected = np.empty(len(p))
    running = 1.0
    for rank in range(len(p), 0, -1):
        running = min(running, p[order[rank - 1]] * len(p) / rank)
        expected[order[rank - 1]] = running
    np.testing.assert_allclose(q_values(p), expected)


def test_q_values_leave_undefined_pairs_alone() -> None:
    p = np.array([0.01, np.nan, 0.04])
    np.testing.assert_allclose(q_values(p), [0.02, np.nan, 0.04])
    assert np.isnan(q_values(np.full(3, np.nan))).all()


def test_kl_is_zero_for_what_the_null_gives_and_large_for_what_it_does_not() -> None:
    drawn = np.random.default_rng(0).normal(5.33, 0.5, size=400_000)
    assert kl_from_normal(drawn, 64, 5.33, 0.25) < 0.01
    assert kl_from_normal(drawn + 3, 64, 5.33, 0.25) > 5
    assert np.isnan(kl_from_normal(drawn, 64, 5.33, 0.0))


def test_the_direction_of_a_planted_asymmetry_is_found() -> None:
    scores, layers = table(layers=7), np.arange(7)
    forward = layers[:, None, None, None] < layers[None, None, :, None]
    test = direction_test(scores + 2.0 * forward, layers)
    plain = direction_test(scores, layers)
    assert test.difference == pytest.approx(plain.difference + 2.0)
    assert test.p_value < 0.01 < plain.p_value
    assert test.ks_distance > 0.4


@pytest.mark.parametrize(
    ("n_layers", "smallest"), [(1, 1.0), (2, 1.0), (3, 1 / 3), (4, 1 / 12), (5, 1 / 60), (7, 2 / 5040)]
)
def test_few_layers_bound_the_p_value_of_a_direction(n_layers: int, smallest: float) -> None:
    """The clearest direction there can be reaches the smallest p-value exactly, since all orders are counted."""
    layers = np.arange(n_layers)
    clear = (layers[None, None, :, None] - layers[:, None, None, None]) * np.ones((n_layers, 2, n_layers, 2))
    test = direction_test(clear, layers)
    assert test.smallest_p == pytest.approx(smallest)
    assert test.p_value == pytest.approx(smallest)


def test_directions_are_found_no_more_often_than_stated() -> None:
    for row in direction_rates(seed=0, draws=250):
        # Four standard errors, since 24 rates are compared; at 0.001 one hit in 250 is within them.
        assert row["rate"] <= row["level"] + 4 * (row["level"] / row["n"]) ** 0.5, row


def test_intervals_resample_heads_and_cover_the_mean() -> None:
    """Scores made of head effects: pairs share them, and an interval over pairs would be far too narrow."""
    covered, width_pairs, widths = 0, [], []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        effect = generator.normal(size=(4, 12))
        scores = effect[:, :, None, None] + effect[None, None] + 0.1 * generator.normal(size=(4, 12, 4, 12))
        layers = np.arange(4)
        scores = np.where(layers[:, None, None, None] < layers[None, None, :, None], scores, np.nan)
        low, high = bootstrap_mean_interval(scores, draws=300, seed=seed)
        covered += low <= 0.0 <= high
        widths.append(high - low)
        known = scores[~np.isnan(scores)]
        width_pairs.append(2 * stats.sem(known) * 1.96)
    assert covered >= 50
    assert np.mean(widths) > 2 * np.mean(width_pairs)


def test_nothing_to_resample_gives_no_interval() -> None:
    low, high = bootstrap_mean_interval(np.full((2, 2, 2, 2), np.nan), draws=5)
    assert np.isnan([low, high]).all()
