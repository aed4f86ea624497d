"""The two-way null: it fits what heads and layers share, finds planted pairs, and says nothing of unrelated ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headspan.statistics import two_way
from headspan.statistics.two_way_fit import _robust_fit, _starts, mirror_fdr, obstacle

LAYERS, HEADS = 8, 8
PLACES = np.repeat(np.arange(LAYERS), HEADS)
FORWARD = PLACES[:, None] < PLACES


def scores(seed: int, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Scores with effects of both heads and of the pair of layers, and exp of these effects."""
    generator = np.random.default_rng(seed)
    effects = 0.3 * generator.standard_normal((LAYERS * HEADS, 1)) + 0.3 * generator.standard_normal(LAYERS * HEADS)
    by_layers = 0.4 * generator.standard_normal((LAYERS, LAYERS))
    fit = 1.5 + effects + np.repeat(np.repeat(by_layers, HEADS, 0), HEADS, 1)
    return np.exp(fit + noise * generator.standard_normal(fit.shape)), np.exp(fit)


def test_expected_scores_are_what_heads_and_layers_share() -> None:
    drawn, expected = scores(0, noise=0.02)
    found = two_way(drawn, PLACES, PLACES)
    known = PLACES[:, None] != PLACES
    np.testing.assert_allclose(found.expected[known], expected[known], rtol=0.05)
    assert found.scale == pytest.approx(0.02, rel=0.1)


def test_pairs_of_one_layer_zero_and_nan_stay_out() -> None:
    drawn, _ = scores(1)
    drawn[0, 20], drawn[3, 40] = 0.0, np.nan
    found = two_way(drawn, PLACES, PLACES)
    for part in (found.expected, found.z, found.p, found.q, found.mirror_fdr):
        assert np.isnan(part[PLACES[:, None] == PLACES]).all()
        assert np.isnan(part[0, 20])
        assert np.isnan(part[3, 40])
        assert np.isfinite(part).sum() == LAYERS * (LAYERS - 1) * HEADS**2 - 2


def test_the_unit_of_a_score_does_not_matter() -> None:
    drawn, _ = scores(2)
    one, other = two_way(drawn, PLACES, PLACES), two_way(1000 * drawn, PLACES, PLACES)
    np.testing.assert_allclose(one.z, other.z, atol=1e-9)
    np.testing.assert_allclose(other.expected, 1000 * one.expected)


def test_source_and_destination_change_places_together() -> None:
    drawn, _ = scores(3)
    one, other = two_way(drawn, PLACES, PLACES), two_way(drawn.T, PLACES, PLACES)
    np.testing.assert_allclose(one.z, other.z.T, atol=0.02)


def test_unrelated_pairs_have_uniform_p_values_and_few_discoveries() -> None:
    found = [two_way(scores(seed)[0], PLACES, PLACES) for seed in range(40)]
    p = np.concatenate([each.p[~np.isnan(each.p)] for each in found])
    assert stats.kstest(p, "uniform").statistic < 0.01
    assert 0.0005 < (p < 0.001).mean() < 0.002
    assert np.mean([(each.q < 0.05).any() for each in found]) < 0.2
    assert np.mean([(each.mirror_fdr <= 0.1).any() for each in found]) < 0.2


def test_a_pair_left_out_is_judged_by_the_fit_without_it() -> None:
    drawn, expected = scores(6)
    drawn[9, 60] = 2 * expected[9, 60]
    found, logs = two_way(drawn, PLACES, PLACES, left_out=True), np.log(drawn)
    for pair in ((9, 60), (3, 20), (40, 11), (63, 0), (5, 33)):
        others = PLACES[:, None] != PLACES
        others[pair] = False
        without = _robust_fit(np.where(others, logs, 0.0), others, _starts(PLACES), _starts(PLACES))[pair]
        assert np.log(found.expected[pair]) == pytest.approx(without, abs=0.01 * found.scale)


def test_leaving_pairs_out_makes_normal_residuals_of_normal_logarithms() -> None:
    def tails(left_out: bool) -> tuple[float, float]:
        found = [two_way(scores(seed)[0][:40, :40], PLACES[:40], PLACES[:40], left_out=left_out) for seed in range(150)]
        z = np.concatenate([each.z[~np.isnan(each.z)] for each in found])
        return float(stats.kurtosis(z)), float((np.abs(z) > 3.0902).mean() / 0.002)

    kurtosis, rate = tails(left_out=True)
    assert abs(kurtosis) < 0.03
    assert 0.9 < rate < 1.15
    longer, more = tails(left_out=False)  # what it mends
    assert longer > 0.1
    assert more > 1.3


def test_equal_scores_leave_nothing_out() -> None:
    found = two_way(np.ones((16, 16)), np.repeat([0, 1], 8), np.repeat([0, 1], 8), left_out=True)
    assert np.isnan(found.z).all()


def test_a_layer_that_differs_from_the_others_is_no_discovery() -> None:
    drawn, _ = scores(4)
    drawn[PLACES == 2] *= 3
    drawn[:, PLACES == 6] *= 3
    drawn[np.ix_(PLACES == 2, PLACES == 6)] *= 3
    assert (two_way(drawn, PLACES, PLACES).q < 0.05).sum() <= 2


def test_planted_pairs_are_found_and_their_neighbors_are_not() -> None:
    drawn, expected = scores(5)
    planted = [(0, 30), (3, 50), (9, 60), (12, 33), (20, 62), (7, 45), (25, 58), (1, 63), (14, 41), (30, 55), (6, 28)]
    for src, dst in planted:
        drawn[src, dst] = 2.5 * expected[src, dst]
    found = two_way(drawn, PLACES, PLACES)
    assert all(found.q[pair] < 1e-4 and found.mirror_fdr[pair] <= 0.1 for pair in planted)
    assert (found.q < 0.05).sum() <= len(planted) + 3
    np.testing.assert_allclose(
        [found.expected[pair] for pair in planted], [expected[pair] for pair in planted], rtol=0.2
    )


def test_the_mirror_check_counts_both_tails() -> None:
    z = np.array([5.0, 4.0, 3.0, 2.0, 1.0, -1.5, -2.5, np.nan])
    found = mirror_fdr(z)
    # At 3: one plus none below -3 over three above; at 2: one plus one over four; at 1: three over five.
    np.testing.assert_allclose(found[:5], [1 / 3, 1 / 3, 1 / 3, 2 / 4, 3 / 5])
    np.testing.assert_allclose(found[5:7], 1)
    assert np.isnan(found[7])


def test_nothing_to_fit_gives_nothing() -> None:
    found = two_way(np.full((4, 4), np.nan), np.arange(4), np.arange(4))
    assert np.isnan(found.z).all()
    assert np.isnan(found.scale)


@pytest.mark.parametrize(
    ("shape", "small"),
    [((12, 12, 12), False), ((30, 9, 3), False), ((2, 64, 64), True), ((5, 8, 4), True), ((32, 71, 1), True)],
)
def test_small_models_are_told_why(shape: tuple[int, int, int], small: bool) -> None:
    reason = obstacle(*shape)
    assert (reason is not None) == small
    assert reason is None or f"this model has {shape[0]}, " in reason
