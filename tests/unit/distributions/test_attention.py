"""Attention layers in a row: against torch's attention, the collapse of random layers, and its counterexample."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headspan.distributions import (
    AttentionWeights,
    attention_layer,
    attention_pattern,
    information_by_distance,
    information_estimate,
    layer_norm,
    layer_states,
    mean_cosine,
    mean_distance,
    mixing_sweep,
    opposite_step,
    opposite_threshold,
    random_layers,
    sampled_information,
    token_course,
    token_rank,
    token_residual,
)
from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
def test_a_layer_is_torchs_attention(causal: bool) -> None:
    X, (weights,) = normal(3, 5, 8), random_layers(8, 1, seeded(1), k=4)
    expected = torch.nn.functional.scaled_dot_product_attention(
        X @ weights.W_Q, X @ weights.W_K, X @ weights.W_V, is_causal=causal
    )
    found, pattern = attention_layer(X, weights, causal=causal)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(pattern.sum(-1), 1.0)


@pytest.mark.parametrize("causal", [False, True])
def test_several_heads_add_up_to_torchs_multi_head_attention(causal: bool) -> None:
    """W_V of a head is what it reads times what it writes, as a model's own weights are handed over."""
    d, heads = 12, 3
    packed, out, X = normal(3 * d, d), normal(d, d, seed=1), normal(2, 5, d, seed=2)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected, patterns = torch.nn.functional.multi_head_attention_forward(
        *(X.transpose(0, 1),) * 3, d, heads, packed, None, None, None, False, 0.0, out, None,
        attn_mask=mask, average_attn_weights=False,
    )  # fmt: skip
    W_Q, W_K, W_V = packed.reshape(3, heads, d // heads, d).mT
    weights = AttentionWeights(W_Q, W_K, W_V @ out.T.reshape(heads, d // heads, d))
    found, pattern = attention_layer(X, weights, causal=causal)
    np.testing.assert_allclose(found, expected.transpose(0, 1), atol=1e-10)
    np.testing.assert_allclose(pattern, patterns, atol=1e-10)


def test_skip_and_norm_enter_as_stated() -> None:
    X, (weights,) = normal(5, 8), random_layers(8, 1, seeded(1))
    whole, _ = attention_layer(X, weights)
    np.testing.assert_allclose(attention_layer(X, weights, beta=0.3)[0], 0.3 * whole + 0.7 * X, atol=1e-13)
    np.testing.assert_allclose(attention_layer(X, weights, norm=True)[0], layer_norm(whole), atol=1e-13)
    assert torch.equal(attention_layer(X, weights, beta=0.0)[0], X)


def test_random_layers_have_the_norms_and_rank_asked_for() -> None:
    layers = random_layers(12, 2, seeded(2), k=3, norms=(2.0, 1.0, 0.5))
    norms = [[float(torch.linalg.matrix_norm(W, 2)) for W in layer] for layer in layers]
    np.testing.assert_allclose(norms, [[2.0, 1.0, 0.5]] * 2)
    assert layers[0].W_Q.shape == (12, 3)
    free = random_layers(200, 1, seeded(3))[0]
    assert float(torch.linalg.matrix_norm(free.W_V, 2)) == pytest.approx(2.0, rel=0.05)


def test_random_layers_collapse_tokens_doubly_fast() -> None:
    """The ledger, thesis 7.2.3: cosine above 0.999 and residual down by powers that themselves grow."""
    course = token_course(normal(1, 64, 64), random_layers(64, 4, seeded(5)))
    assert abs(float(course.cosine[0])) < 0.02
    assert float(course.cosine[3]) > 0.999
    logs = course.residual[1:4].log10()
    assert float(logs[2] - logs[1]) < 1.5 * float(logs[1] - logs[0]) < 0
    assert float(course.rank[0]) > 30
    assert float(course.rank[-1]) == pytest.approx(1, abs=1e-9)


def test_skips_slow_the_collapse() -> None:
    X, layers = normal(1, 32, 32), random_layers(32, 12, seeded(6))
    cosines = [float(token_course(X, layers, beta=beta, norm=True).cosine[-1]) for beta in (0.1, 0.5, 1.0)]
    assert cosines[0] < 0.3 < 0.8 < cosines[1] < cosines[2]


def test_two_tokens_with_weights_of_norm_2_can_part_for_ever() -> None:
    two = torch.full((1, 1), 2.0, dtype=torch.float64)
    layers = [AttentionWeights(two, two, two)] * 3
    states, _ = layer_states(torch.tensor([[1.0], [-1.0]], dtype=torch.float64), layers, scale=1.0)
    x = torch.tensor(1.0, dtype=torch.float64)
    for state in states[1:]:
        x = opposite_step(x)
        np.testing.assert_allclose(state.flatten(), [float(x), -float(x)], rtol=1e-12)
    assert 2 * float(x) == pytest.approx(15.989, abs=1e-3)


@pytest.mark.parametrize("weights", [(2.0, 2.0, 2.0), (1.0, 3.0, 1.2)])
def test_the_threshold_divides_collapse_from_parting(weights: tuple[float, float, float]) -> None:
    edge = opposite_threshold(*weights)
    below, above = torch.tensor(0.999 * edge).double(), torch.tensor(1.001 * edge).double()
    for _ in range(60):
        below, above = opposite_step(below, *weights), opposite_step(above, *weights)
    assert float(below) < 1e-6
    assert float(above) > 2 * edge
    assert float(opposite_step(torch.tensor(edge).double(), *weights)) == pytest.approx(edge)
    assert opposite_threshold() == pytest.approx(0.3706, abs=1e-4)
    assert opposite_threshold(v=0.9) == math.inf


def test_measures_agree_with_their_definitions() -> None:
    X = normal(6, 4) + 1
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    cosines = [float(torch.cosine_similarity(X[i], X[j], dim=0)) for i, j in pairs]
    distances = [float((X[i] - X[j]).norm()) for i, j in pairs]
    assert float(mean_cosine(X)) == pytest.approx(np.mean(cosines))
    assert float(mean_distance(X)) == pytest.approx(np.mean(distances))
    rest = float((X - X.mean(0)).norm() / X.norm())
    assert float(token_residual(X)) == pytest.approx(rest)
    share = torch.linalg.svdvals(X) ** 2
    share = share / share.sum()
    assert float(token_rank(X)) == pytest.approx(math.exp(-float((share * share.log()).sum())))


def test_zero_tokens_are_undefined_and_equal_tokens_are_one() -> None:
    assert mean_cosine(torch.zeros(3, 2)).isnan()
    assert token_residual(torch.zeros(3, 2)).isnan()
    assert token_rank(torch.zeros(3, 2)).isnan()
    same = normal(4).expand(3, 4)
    found = [float(measure(same)) for measure in (mean_cosine, token_residual, mean_distance, token_rank)]
    assert found == pytest.approx([1.0, 0.0, 0.0, 1.0], abs=1e-12)


def test_sampled_information_is_that_of_a_known_correlation() -> None:
    x, noise = normal(40_000, 3, seed=7), normal(40_000, 3, seed=8)
    rho = 0.6
    truth = -1.5 * math.log(1 - rho**2)
    mixed = (rho * x + math.sqrt(1 - rho**2) * noise) @ normal(3, 3, seed=9)
    assert sampled_information(x, mixed) == pytest.approx(truth, abs=0.03)
    assert sampled_information(x, noise) == pytest.approx(0, abs=4e-4)
    assert sampled_information(x[:, :2], x @ normal(3, 3, seed=9)) > 15


def test_coordinates_that_follow_from_others_add_no_information() -> None:
    """As after LayerNorm, where coordinates sum to 0: neither a spurious correlation, nor bias taken off twice."""
    x, y = normal(2000, 3, seed=7), normal(2000, 3, seed=8) + 0.5 * normal(2000, 3, seed=7)
    plain = sampled_information(x, y)
    wider = [torch.cat([side, -side.sum(-1, keepdim=True), torch.ones(2000, 1)], -1) for side in (x, y)]
    assert sampled_information(*wider) == pytest.approx(plain, abs=1e-9)


def test_sampled_information_agrees_with_that_of_the_covariance() -> None:
    x, y = normal(300, 3, seed=7), normal(300, 2, seed=8) + normal(300, 3, seed=7)[:, :2]
    assert sampled_information(x, y) == pytest.approx(float(information_estimate(x, y)), abs=1e-10)


def test_information_is_followed_into_the_collapse() -> None:
    """Finite while anything sets tokens apart, then infinite; never an error, never NaN."""
    found = token_course(normal(400, 4, 3), random_layers(3, 12, seeded(0))).information
    assert not found.isnan().any()
    assert (found[1:] > 0.5).all()
    zero, eye = torch.zeros(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    assert float(token_course(normal(400, 4, 3), [AttentionWeights(zero, zero, eye)]).information[1]) > 30


def test_information_falls_with_the_distance_of_tokens() -> None:
    """An autoregression of order 1: I at distance k is -1/2 log(1 - a^(2 k)) per coordinate."""
    a, steps = 0.8, [normal(30_000, 1, seed=1)]
    for k in range(3):
        steps.append(a * steps[-1] + math.sqrt(1 - a * a) * normal(30_000, 1, seed=20 + k))
    found = information_by_distance(torch.stack(steps, 1))
    expected = [-0.5 * math.log(1 - a ** (2 * k)) for k in (1, 2, 3)]
    assert found.tolist() == pytest.approx(expected, abs=0.02)


def test_the_course_has_information_where_samples_suffice() -> None:
    layers = random_layers(3, 2, seeded(1))
    assert token_course(normal(4, 5, 3), layers).information.isnan().all()
    many = token_course(normal(400, 5, 3), layers, causal=True)
    assert many.information[0] == pytest.approx(0, abs=0.02)
    assert many.information[1] > 0.1
    assert ((many.attention_entropy > 0) & (many.attention_entropy <= 1)).all()


def test_uniform_attention_has_full_entropy() -> None:
    zero = torch.zeros(3, 3, dtype=torch.float64)
    layers = [AttentionWeights(zero, zero, torch.eye(3, dtype=torch.float64))]
    for causal in (False, True):
        assert float(token_course(normal(1, 5, 3), layers, causal=causal).attention_entropy) == pytest.approx(1)


def test_the_sweep_changes_one_setting_at_a_time() -> None:
    X = normal(2, 16, 16)
    found = mixing_sweep(X, [0.5, 2.0], [2, 16], [0.2, 1.0], depth=3, seed=3, norm=True)
    assert found.cosine.shape == (2, 2, 2, 4)
    assert float((found.cosine[..., 0] - mean_cosine(X).mean()).abs().max()) < 1e-12
    again = token_course(X, random_layers(16, 3, seeded(3), 2, (2.0, 2.0, 2.0)), beta=0.2, norm=True)
    np.testing.assert_allclose(found.residual[1, 0, 0], again.residual, atol=1e-12)
    assert (found.cosine[:, :, 1, -1] > found.cosine[:, :, 0, -1]).all()


EYE = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: attention_layer(normal(4, 2), AttentionWeights(EYE, EYE, EYE)), ShapeError, "width 2 need W_Q"),
        (
            lambda: attention_layer(normal(4, 3), AttentionWeights(EYE, EYE, EYE), 1.5),
            ArgumentError,
            r"\[0, 1\], found 1.5",
        ),
        (lambda: attention_pattern(torch.full((2, 3), math.nan).double(), EYE, EYE), DegenerateSubspace, "found 6 NaN"),
        (lambda: mean_cosine(normal(1, 4)), ShapeError, "at least 2 of them, found 1"),
        (lambda: sampled_information(normal(5, 3), normal(5, 3)), ShapeError, "more than 6 samples, found 5, 5"),
        (lambda: opposite_threshold(1.0, -1.0), ArgumentError, "of one sign, found 1 and -1"),
        (lambda: random_layers(0, 1, seeded(0)), ArgumentError, "sides of at least 1"),
        (lambda: mixing_sweep(normal(1, 2, 2), [], [1], [1.0], 1, 0), ArgumentError, "one value of each setting"),
    ],
)
def test_bad_input_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
