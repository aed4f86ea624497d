"""The peers null: its definition, what it leaves to chance, and where it declines."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headspan.statistics.peers import peers, peers_obstacle


def test_a_member_is_compared_with_the_geometric_mean_of_its_layer() -> None:
    scores = np.exp(np.random.default_rng(0).normal(size=(2, 12)))
    layers = np.repeat([0, 1, 2], 4)
    fit = peers(scores, layers)
    for partner in range(2):
        for layer in range(3):
            own = scores[partner, layers == layer]
            np.testing.assert_allclose(fit.expected[partner, layers == layer], stats.gmean(own), rtol=1e-12)
    residual = np.log(scores / fit.expected)
    np.testing.assert_allclose(fit.scale, 1.4826 * np.median(np.abs(residual)), rtol=1e-12)
    np.testing.assert_allclose(fit.p, stats.norm.sf(residual / fit.scale), rtol=1e-9)


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
    assert peers_obstacle(np.repeat(np.arange(11), 3)) is None
    small, thin = peers_obstacle(np.repeat([0, 1], 8)), peers_obstacle(np.repeat(np.arange(20), 2))
    assert small == "the peers null needs 32 members and 3 in every layer; here are 16 and 8"
    assert thin == "the peers null needs 32 members and 3 in every layer; here are 40 and 2"
    assert peers_obstacle(np.zeros(0, dtype=int)) is not None


@pytest.mark.parametrize("scores", [np.full((2, 6), np.nan), np.zeros((2, 6)), np.zeros((0, 6))])
def test_a_table_without_scores_has_no_z(scores: np.ndarray) -> None:
    assert np.isnan(peers(scores, np.repeat([0, 1], 3)).z).all()
