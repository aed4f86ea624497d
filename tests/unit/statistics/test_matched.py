"""Members against others of their strata: exact on a small case, uniform under shuffled labels, blind to strata."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from headspan.errors import ArgumentError
from headspan.statistics import matched_draws, matched_test

LAYER = np.repeat(np.arange(6), 8)


def test_draws_keep_how_many_are_chosen_in_every_stratum() -> None:
    chosen = np.random.default_rng(0).random(48) < 0.3
    drawn = matched_draws(chosen, LAYER, 50, seed=1)
    for layer in range(6):
        assert (drawn[:, layer == LAYER].sum(1) == chosen[layer == LAYER].sum()).all()
    assert not (drawn == drawn[0]).all()


def test_the_p_value_is_that_of_all_choices() -> None:
    values, layer = np.array([3.0, 1.0, 2.0, 0.0, 5.0, 4.0]), np.array([0, 0, 0, 1, 1, 1])
    chosen = np.array([True, False, True, False, True, False])
    pairs, singles = combinations(range(3), 2), range(3, 6)
    means = [(values[a] + values[b] + values[c]) / 3 for a, b in pairs for c in singles]
    exact = np.mean(np.array(means) >= values[chosen].mean() - 1e-9)
    found = matched_test(values, chosen, layer, draws=20_000)
    assert found.p == pytest.approx(exact, abs=0.01)
    assert found.expected == pytest.approx(np.mean(means), abs=0.02)


def test_p_values_are_uniform_under_shuffled_labels() -> None:
    """Values that rise with depth and labels that gather in deep layers, unrelated within a layer."""
    generator = np.random.default_rng(3)
    found = []
    for seed in range(400):
        values = 10.0 * LAYER + generator.standard_t(3, size=48)
        chosen = generator.random(48) < LAYER / 12
        chosen[-1] = True
        found.append(matched_test(values, chosen, LAYER, draws=199, seed=seed).p)
    for level in (0.05, 0.2, 0.5):
        rate = np.mean(np.array(found) <= level)
        assert abs(rate - level) < 4 * np.sqrt(level * (1 - level) / 400), level


def test_members_that_stand_out_of_their_strata_are_found() -> None:
    generator = np.random.default_rng(4)
    values, chosen = generator.normal(size=48), np.zeros(48, dtype=bool)
    chosen[[3, 13, 22, 30, 41]] = True
    values[chosen] += 3
    assert matched_test(values, chosen, LAYER, draws=9999).p < 1e-3
    assert matched_test(-values, chosen, LAYER, draws=9999).p > 0.99


def test_members_without_a_value_are_left_out() -> None:
    values, chosen = np.arange(48.0), np.zeros(48, dtype=bool)
    chosen[[0, 9]] = True
    values[0] = np.nan
    assert matched_test(values, chosen, LAYER, draws=99).mean == 9.0
    with pytest.raises(ArgumentError, match="none of the chosen members has a value"):
        matched_test(np.full(48, np.nan), chosen, LAYER)
    with pytest.raises(ArgumentError, match="every member needs a stratum"):
        matched_draws(chosen, LAYER[:5], 10)
