"""Great circles: against the textbook weights and SciPy, on the sphere at every angle, and what cannot be walked."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.spatial
import torch
from hypothesis import given
from hypothesis import strategies as st

from headspan.distributions import angle_between, random_pairs, slerp, slerp_velocity, slerp_weights
from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


TIMES = torch.linspace(0, 1, 21, dtype=torch.float64)


def pair(angle: float, n: int = 6, radius: float = 1.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    v, w = random_pairs(n, radius, angle, 1, torch.Generator().manual_seed(seed))
    return v[0], w[0]


def test_the_walk_is_scipys() -> None:
    v, w = pair(1.1)
    expected = scipy.spatial.geometric_slerp(v.numpy(), w.numpy(), TIMES.numpy())
    np.testing.assert_allclose(slerp(v, w, TIMES), expected, atol=1e-13)


@pytest.mark.parametrize("angle", [0.3, math.pi / 2, 3.0])
def test_the_walk_has_the_textbook_weights(angle: float) -> None:
    v, w = pair(angle, radius=2.5)
    for t in (0.0, 0.2, 0.9):
        a, b = slerp_weights(numbers(angle), t)
        np.testing.assert_allclose(slerp(v, w, numbers(t))[0], a * v + b * w, atol=1e-12)
        assert float(a * a + b * b + 2 * a * b * math.cos(angle)) == pytest.approx(1)


@given(
    st.floats(-12, 0).map(lambda x: 10**x),
    st.booleans(),
    st.floats(-6, 6).map(lambda x: 10**x),
    st.integers(0, 99),
)
def test_the_walk_stays_on_the_sphere_and_keeps_its_pace(gap: float, far: bool, radius: float, seed: int) -> None:
    """However near 0 or pi the angle is: equal steps in time are equal angles."""
    angle = math.pi - gap if far else gap
    v, w = pair(angle, 4, radius, seed)
    path = slerp(v, w, TIMES)
    assert path.norm(dim=-1).tolist() == pytest.approx([radius] * 21, rel=1e-12)
    assert float(angle_between(v, w)) == pytest.approx(angle, rel=1e-3 if far else 1e-15 / gap + 1e-3)
    steps = (path[1:] - path[:-1]).norm(dim=-1) / radius
    assert steps.tolist() == pytest.approx([2 * math.sin(float(angle_between(v, w)) / 40)] * 20, rel=1e-6, abs=1e-15)


def test_equal_points_give_a_constant_path_and_weights_their_limit() -> None:
    v = numbers(3.0, 4.0)
    np.testing.assert_allclose(slerp(v, v, TIMES), v.expand(21, 2), rtol=1e-15)
    a, b = slerp_weights(numbers(0.0), 0.25)
    assert (float(a), float(b)) == (0.75, 0.25)


def test_the_velocity_is_the_derivative() -> None:
    v, w = random_pairs(5, 3.0, 2.0, 4, torch.Generator().manual_seed(1))
    step = 1e-6
    numeric = (slerp(v, w, TIMES + step) - slerp(v, w, TIMES - step)) / (2 * step)
    np.testing.assert_allclose(slerp_velocity(v, w, TIMES), numeric, atol=1e-7)
    np.testing.assert_allclose(slerp_velocity(v, w, TIMES).norm(dim=-1), 6.0, rtol=1e-12)


def test_batches_broadcast() -> None:
    v, w = random_pairs(5, 1.0, 0.7, 6, torch.Generator().manual_seed(2))
    path = slerp(v[0], v.reshape(2, 3, 5), TIMES)
    assert path.shape == (2, 3, 21, 5)
    np.testing.assert_allclose(path[1, 2], slerp(v[0], v[5], TIMES), atol=1e-14)
    assert angle_between(v, w).tolist() == pytest.approx([0.7] * 6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: slerp(numbers(0.0, 0.0), numbers(1.0, 0.0), TIMES), DegenerateSubspace, "found a zero vector"),
        (
            lambda: slerp(numbers(1.0, 0.0), numbers(-1.0, 0.0), TIMES),
            DegenerateSubspace,
            "not antipodes, found w = -v",
        ),
        (lambda: slerp(numbers(1.0, 0.0), numbers(0.0, 2.0), TIMES), ArgumentError, "one sphere, found radii 1 and 2"),
        (lambda: slerp(numbers(1.0, 0.0), numbers(math.nan, 1.0), TIMES), DegenerateSubspace, "found 1 NaN"),
        (lambda: angle_between(numbers(1.0), numbers(1.0, 2.0)), ShapeError, r"found shapes \(1,\) and \(2,\)"),
        (lambda: slerp_weights(numbers(math.pi), 0.5), DegenerateSubspace, r"angles in \[0, pi\), found \[3.14"),
        (lambda: random_pairs(1, 1.0, 1.0, 1, torch.Generator()), ArgumentError, "at least 2 dimensions and 1 draw"),
        (lambda: random_pairs(2, 0.0, 1.0, 1, torch.Generator()), DegenerateSubspace, "positive radius, found 0"),
    ],
)
def test_what_cannot_be_walked_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
