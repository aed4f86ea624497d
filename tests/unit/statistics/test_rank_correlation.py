"""Spearman's correlation against SciPy's, and Mantel's test against what was planted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from headspan.statistics import mantel, spearman, standard_ranks
from headspan.statistics.permutation import _permuted_correlations


def test_spearman_is_scipys_along_the_last_axis() -> None:
    x, y = np.random.default_rng(0).integers(0, 6, size=(2, 4, 15)).astype(float)
    expected = [spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(spearman(x, y), expected)
    assert np.isnan(spearman(np.ones(5), np.arange(5.0)))


def tables(seed: int, n: int = 9) -> list[np.ndarray]:
    points = np.random.default_rng(seed).normal(size=(2, n, 3))
    return [np.linalg.norm(each[:, None] - each[None], axis=-1) for each in points]


def test_mantel_finds_spearmans_correlation_and_what_is_planted() -> None:
    distance, other = tables(0)
    upper = np.triu_indices(9, 1)
    found = mantel([distance, distance], [other, distance**2], 199, 0)
    assert found["spearman"] == pytest.approx([spearmanr(distance[upper], other[upper]).statistic, 1.0])
    assert found["p_value"][1] == pytest.approx(1 / 200)
    assert found["low"][1] == pytest.approx(1.0)
    assert found["low"][0] < found["spearman"][0] < found["high"][0]
    assert found["mean_spearman"] == pytest.approx(found["spearman"].mean())


def test_mantel_permutes_complete_tables_and_tables_with_missing_pairs_alike() -> None:
    distance, other = tables(3)
    one = other.copy()
    one[0, 1] = one[1, 0] = np.nan
    orders = [np.random.default_rng(k).permutation(9) for k in range(5)]
    for y in (other, one):
        expected = []
        for order in orders:
            turned, upper = distance[np.ix_(order, order)], np.triu_indices(9, 1)
            known = ~np.isnan(y[upper])
            expected.append(spearmanr(turned[upper][known], y[upper][known]).statistic)
        np.testing.assert_allclose(_permuted_correlations(distance, y, orders), expected)


def test_mantel_p_values_are_uniform_where_nothing_is_related() -> None:
    p_values = np.array([mantel(tables(seed)[:1], tables(seed)[1:], 49, seed)["p_value"][0] for seed in range(60)])
    # 60 draws: the share below one half has a standard error of 0.065.
    assert abs((p_values <= 0.5).mean() - 0.5) < 4 * 0.065
    assert (p_values <= 0.1).sum() <= 18


def test_mantel_of_too_few_heads_or_constant_tables_is_undefined() -> None:
    small, flat = np.ones((3, 3)), np.ones((6, 6))
    found = mantel([small, flat], [small, tables(0, 6)[0]], 99, 0)
    assert np.isnan(found["spearman"]).all()
    assert np.isnan(found["p_value"]).all()
    assert np.isnan(found["mean_p_value"])


@pytest.mark.parametrize("kinds", [3, 1000])
def test_ranks_are_those_of_scipy_with_ties_and_with_nan(kinds: int) -> None:
    values = np.random.default_rng(kinds).integers(0, kinds, (4, 3, 9)).astype(float)
    values[0, 1, 2] = np.nan
    ranks = rankdata(values, axis=-1)
    with np.errstate(invalid="ignore"):
        expected = (ranks - ranks.mean(-1, keepdims=True)) / ranks.std(-1, keepdims=True)
    np.testing.assert_allclose(standard_ranks(values), expected)
