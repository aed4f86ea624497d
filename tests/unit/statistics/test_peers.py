"""The peers null: its definition, what it leaves to chance, and where it declines."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headspan.statistics.peers import peers, peers_obstacle


def test_a_member_is_compared_with_the_other_members_of_its_layer() -> None:
    scores = np.exp(np.random.default_rng(0).normal(size=(2, 15)))
    layers = np.repeat([0, 1, 2], 5)
    fit = peers(scores, layers)
    logs = np.log(scores)
    means = np.repeat(logs.reshape(2, 3, 5).mean(-1), 5, axis=1)
    scale = 1.4826 * np.median(np.abs(logs - means))
    np.testing.assert_allclose(fit.scale, scale, rtol=1e-12)
    for partner, member in np.ndindex(*scores.shape):
        others = np.delete(logs[partner], member)[np.delete(layers, member) == layers[member]]
        np.testing.assert_allclose(fit.expected[partner, member], stats.gmean(np.exp(others)), rtol=1e-12)
        own = stats.ttest_ind([logs[partner, member]], others).pvalue / 2
        pooled = stats.norm.sf(abs(logs[partner, member] - means[partner, member]) / scale)
        tail = max(own, pooled)
        above = logs[partner, member] > means[partner, member]
        np.testing.assert_allclose(fit.p[partner, member], tail if above else 1 - tail, rtol=1e-9)


def test_a_spread_that_changes_with_the_layer_is_no_discovery() -> None:
    draw, p = np.random.default_rng(3), []
    layers = np.repeat(np.arange(8), 8)
    for _ in range(60):
        spread = np.repeat(np.geomspace(0.02, 0.5, 8), 8)
        p.append(peers(np.exp(draw.normal(size=(2, 64)) * spread), layers).p.ravel())
    rate = (np.concatenate(p) < 1e-3).mean()
    assert rate < 2e-3


def test_effects_of_layers_and_partners_are_not_discoveries() -> None:
    draw, false = np.random.default_rng(1), 0
    layers = np.repeat(np.arange(6), 8)
    for _ in range(40):
        noise = draw.normal(size=(3, 48)) * 0.1
        scores = np.exp(noise + draw.normal(size=(3, 1)) + np.repeat(draw.normal(size=(3, 6)), 8, axis=1))
        false += bool((peers(scores, layers).q < 0.05).any())
    assert false <= 6


def test_one_member_that_shares_more_is_found_and_zeros_stay_out() -> None:
    scores = np.exp(np.random.default_rng(2).normal(size=(1, 48)) * 0.1)
    scores[0, 20], scores[0, 3], scores[0, 4] = 8.0, 0.0, np.nan
    fit = peers(scores, np.repeat(np.arange(6), 8))
    assert np.flatnonzero(fit.q[0] < 0.05).tolist() == [20]
    assert np.isnan(fit.z[0, [3, 4]]).all()


def test_too_few_members_are_refused_in_words() -> None:
    assert peers_obstacle(np.repeat(np.arange(8), 4)) is None
    small, thin = peers_obstacle(np.repeat([0, 1], 8)), peers_obstacle(np.repeat(np.arange(20), 2))
    assert small == "the peers null needs 32 members and 4 in every layer; here are 16 and 8"
    assert thin == "the peers null needs 32 members and 4 in every layer; here are 40 and 2"
    assert peers_obstacle(np.zeros(0, dtype=int)) is not None


@pytest.mark.parametrize("scores", [np.full((2, 6), np.nan), np.zeros((2, 6)), np.zeros((0, 6))])
def test_a_table_without_scores_has_no_z(scores: np.ndarray) -> None:
    assert np.isnan(peers(scores, np.repeat([0, 1], 3)).z).all()
