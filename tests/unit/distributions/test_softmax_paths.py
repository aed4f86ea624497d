"""Divergence along great circles: against SciPy, the exact averaged law, and the bounds of each quantity."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from headspan.distributions import (
    cosine_fit,
    exp_departure,
    jsd_of_softmax,
    kl_of_softmax,
    mean_kl_law,
    random_pairs,
    slerp,
    small_radius_kl,
    softmax_path,
    sphere_alignment,
)
from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError

TIMES = torch.linspace(0, 1, 21, dtype=torch.float64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def test_divergences_are_scipys() -> None:
    x, y = 3 * normal(9, 6), 3 * normal(9, 6, seed=1)
    p, q = scipy.special.softmax(x.numpy(), -1), scipy.special.softmax(y.numpy(), -1)
    np.testing.assert_allclose(kl_of_softmax(x, y), scipy.stats.entropy(p, q, axis=-1), rtol=1e-10)
    np.testing.assert_allclose(jsd_of_softmax(x, y).sqrt(), jensenshannon(p, q, axis=-1), rtol=1e-10)


@given(st.floats(-3, 3).map(lambda x: 10**x), st.integers(2, 30), st.integers(0, 999))
def test_divergences_keep_their_bounds_and_vanish_between_equals(size: float, n: int, seed: int) -> None:
    x, y = size * normal(2, n, seed=seed)
    assert 0 <= float(jsd_of_softmax(x, y)) <= math.log(2)
    assert float(kl_of_softmax(x, y)) >= 0
    assert float(kl_of_softmax(x, x + 3)) == pytest.approx(0, abs=1e-12 * max(1, size))
    assert float(jsd_of_softmax(x, x)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("n", [3, 10, 100, 1000])
@pytest.mark.parametrize("radius", [0.5, 1.0, 3.0, None])
def test_the_average_over_pairs_is_exactly_a_cosine(n: int, radius: float | None) -> None:
    """E KL = c (1 - cos((1 - t) theta)): five times, tried together through the covariance of their errors."""
    radius, angle = math.sqrt(n) if radius is None else radius, 1.9
    draws = 4000 if n < 1000 else 600
    v, w = random_pairs(n, radius, angle, draws, seeded(n))
    t = TIMES[[0, 6, 12, 18]]
    path = softmax_path(v, w, t)
    # c of the same w: what is left of the difference has mean 0 at every time.
    own = (torch.softmax(w, -1) * w).sum(-1)
    left = path.kl - own[:, None] * mean_kl_law(1.0, angle, t)
    z = left.mean(0) / (left.std(0) / math.sqrt(draws))
    assert float(z.abs().max()) < 4
    scale, error = sphere_alignment(n, radius, 4 * draws, seeded(n + 1))
    assert abs(scale - float(own.mean())) < 4 * math.hypot(error, float(own.std()) / math.sqrt(draws))


def test_on_small_spheres_the_scale_is_known() -> None:
    for n, radius in ((5, 0.05), (300, 0.5)):
        scale, _ = sphere_alignment(n, radius, 20_000, seeded(0))
        assert scale == pytest.approx(radius**2 * (n - 1) / n**2, rel=2e-3)
    np.testing.assert_allclose(small_radius_kl(5, 0.1, 2.0, TIMES), 0.01 * 4 / 25 * (1 - ((1 - TIMES) * 2).cos()))


def test_the_path_starts_at_v_and_ends_at_no_divergence() -> None:
    v, w = random_pairs(12, 2.0, 2.2, 5, seeded(3))
    path = softmax_path(v, w, TIMES)
    np.testing.assert_allclose(path.kl[:, 0], kl_of_softmax(w, v), atol=1e-14)
    assert float(path.kl[:, -1].abs().max()) < 1e-14
    assert path.angle.tolist() == pytest.approx([2.2] * 5)
    np.testing.assert_allclose(path.distance**2, path.jsd, atol=1e-15)
    assert float(path.jsd.max()) <= math.log(2)
    assert float(path.entropy.max()) <= math.log(12)


def test_only_the_normaliser_is_no_sinusoid() -> None:
    v, w = random_pairs(8, 3.0, 1.4, 3, seeded(4))
    linear = (torch.softmax(w, -1)[:, None] * (w[:, None] - slerp(v, w, TIMES))).sum(-1)
    assert float(cosine_fit(linear, TIMES, softmax_path(v, w, TIMES).angle).residual.max()) < 1e-12
    rest = softmax_path(v, w, TIMES).kl - linear
    lse = torch.logsumexp(slerp(v, w, TIMES), -1) - torch.logsumexp(w, -1)[:, None]
    np.testing.assert_allclose(rest, lse, atol=1e-12)


@given(st.floats(0.01, 5), st.floats(-3.1, 3.1), st.floats(-4, 4), st.floats(0.2, 3.1))
def test_the_fit_finds_a_cosine(amplitude: float, phase: float, offset: float, angle: float) -> None:
    curve = amplitude * (angle * TIMES + phase).cos() + offset
    fit = cosine_fit(curve, TIMES, torch.tensor(angle, dtype=torch.float64))
    assert float(fit.amplitude) == pytest.approx(amplitude, rel=1e-5)
    assert math.cos(float(fit.phase) - phase) == pytest.approx(1, abs=1e-6)
    assert float(fit.offset) == pytest.approx(offset, abs=1e-5 * (amplitude + 1))
    assert float(fit.r2) == pytest.approx(1, abs=1e-6)


def test_a_constant_curve_has_no_residual_to_speak_of() -> None:
    fit = cosine_fit(torch.ones(21, dtype=torch.float64), TIMES, torch.tensor(0.0))
    assert fit.residual.isnan()
    assert fit.curve.tolist() == pytest.approx([1.0] * 21)


def test_residuals_of_single_curves_fall_as_one_over_n() -> None:
    """The ledger's medians for orthogonal pairs at radius 1: 0.0114 for n = 10, 0.00126 for n = 100."""
    for n, expected in ((10, 0.0114), (100, 0.00126)):
        v, w = random_pairs(n, 1.0, math.pi / 2, 300, seeded(n))
        fit = cosine_fit(softmax_path(v, w, TIMES).kl, TIMES, torch.full((300,), math.pi / 2, dtype=torch.float64))
        assert float(fit.residual.median()) == pytest.approx(expected, rel=0.25)


def test_far_apart_on_a_large_sphere_the_divergence_saturates_at_log_2() -> None:
    v, w = random_pairs(10, 200.0, math.pi / 2, 50, seeded(6))
    path = softmax_path(v, w, TIMES)
    assert float(path.jsd[:, 0].median()) == pytest.approx(math.log(2), abs=1e-6)


def test_exp_departs_from_a_sum_by_its_cross_terms() -> None:
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    vectors = normal(4000, 3, 64)
    vectors = 0.5 * vectors / vectors.norm(dim=-1, keepdim=True)
    pairs = sum(float(weights[i] * weights[j]) ** 2 for i in range(3) for j in range(i))
    expected = 0.5 * math.sqrt(pairs / 64) / float(weights.norm())
    assert float(exp_departure(vectors, weights).mean()) == pytest.approx(expected, rel=0.03)
    assert float(exp_departure(vectors[0, :1], weights[:1])) == pytest.approx(0, abs=1e-14)
    assert exp_departure(torch.zeros(2, 3), torch.ones(2)).isnan()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kl_of_softmax(normal(3), normal(4)), ShapeError, "one number of logits, found 3 and 4"),
        (lambda: jsd_of_softmax(normal(3), normal(4)), ShapeError, "one number of logits, found 3 and 4"),
        (lambda: kl_of_softmax(normal(2), torch.tensor([math.nan, 1])), DegenerateSubspace, "found 1 NaN"),
        (lambda: cosine_fit(normal(3), TIMES[:3], torch.tensor(1.0)), ShapeError, "4 times or more"),
        (lambda: sphere_alignment(2, 1.0, 1, seeded(0)), ArgumentError, "1 dimension and 2 draws, found 2 and 1"),
        (lambda: exp_departure(normal(3, 2), torch.ones(2)), ShapeError, "found 3 vectors, 2 weights"),
    ],
)
def test_bad_input_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
