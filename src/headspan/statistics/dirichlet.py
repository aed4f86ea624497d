r"""A law on an interval with four given moments, and its tails as logarithms.

A Dirichlet mean X = sum_k w_k v_k / sum_k w_k, with w_k independent Gamma variables of shape n_k, has atoms v_k and
total shape n = sum n_k. Two atoms make a Beta law. Three, at both ends of the interval and at x between them, also take
in a skewness and a kurtosis: with c_k the central moments of the atoms (weights n_k / n),

    E(X - m)^2 = c_2 / (n + 1),   E(X - m)^3 = 2 c_3 / ((n + 1)(n + 2)),
    E(X - m)^4 = (3 n c_2^2 + 6 c_4) / ((n + 1)(n + 2)(n + 3)).

1. For a given n the first two lines fix x and the weights in closed form (the Gauss-Lobatto rule of three points).
2. At n = 0 the rule has the moments of X itself and the largest fourth moment that any law on the interval has with
   these three. So n grows from 0, by bisection, until the fourth moment has fallen to the given one. Where an
   end would lose its weight first, n stops there, and the fourth moment stays too large: the tails are then too heavy,
   on the safe side.
3. P(X >= t) = P(sum_k w_k (v_k - t) >= 0), the tail of a sum of Gamma variables at 0. Its saddlepoint is a root of a
   quadratic; the tail is Phi(-r*) with r* of Barndorff-Nielsen (1990), finite for every t inside the interval.

References: Barndorff-Nielsen (1990), Approximate interval probabilities; Karlin and Studden (1966), Tchebycheff systems
(the principal representations of moments on an interval).
"""

from __future__ import annotations

import numpy as np
from scipy import special

from headspan.statistics.tails import Array, Values

HALVINGS, CHUNK = 22, 2**12
"""Halvings of the interval for the total shape: n to 3e-7 of that of the Beta law. Values found at a time."""
LEAST_SHAPE = 0.5
"""Of an atom at an end, once its weight falls: that of one squared normal. With less, values near that end would have
no probability."""
NEAR_MEAN = 1e-4
"""Signed root of the likelihood ratio below which r* is taken from its limit."""


def log_dirichlet_tail(
    value: Values, mean: Values, moments: tuple[Values, Values, Values], low: Values, high: Values, upper: bool = True
) -> Array:
    """log P(X >= value), or <= with `upper=False`, for X of a three-atom Dirichlet mean on [low, high].

    Parameters
    ----------
    value, mean, low, high
        Numbers or arrays that broadcast.
    moments
        Second, third and fourth central moment of X, numbers or arrays likewise.

    Returns
    -------
    Array
        In [-Inf, 0], the log of a nearly uniform variable under that law; -Inf only at and beyond the end. NaN where
        an argument is NaN and where there is no such law: without width or variance.
    """
    parts = np.broadcast_arrays(*(np.asarray(part, dtype=np.float64) for part in (value, mean, *moments, low, high)))
    value, mean, second, third, fourth, low, high = parts
    width = high - low
    proper = (second > 0) & (width > 0) & ((mean - low) * (high - mean) > second) & ~np.isnan(value + third + fourth)
    out = np.full(value.shape, np.nan)
    if not proper.any():
        return out
    # In units of the width, from the mean; so few at a time that the arithmetic stays in the processor's cache.
    unit = width[proper]
    t, a, b = ((part[proper] - mean[proper]) / unit for part in (value, low, high))
    scaled = [part[proper] / unit**power for power, part in ((2, second), (3, third), (4, fourth))]
    tails = [
        _log_tail(*(part[start : start + CHUNK] for part in (t, *scaled, a, b)), upper=upper)
        for start in range(0, len(t), CHUNK)
    ]
    out[proper] = np.concatenate(tails)
    return out


def _three_atoms(second: Array, third: Array, fourth: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Shapes and places, [3, ...] each, of the atoms that give X these central moments."""
    above = -a * b / second - 1
    below = 1e-9 * above
    squares = a * a, b * b
    least = [weight / 2 for weight in _lobatto(below, second, third, a, b)[1:]]
    for _ in range(HALVINGS):
        shape = (below + above) / 2
        middle, first, between, last = _lobatto(shape, second, third, a, b)
        spread = first * squares[0] ** 2 + between * (middle * middle) ** 2 + last * squares[1] ** 2
        c2 = (shape + 1) * second
        grows = 3 * shape * c2 * c2 + 6 * spread >= fourth * (shape + 1) * (shape + 2) * (shape + 3)
        grows &= (between >= 0) & (first >= 0) & (last >= 0)
        grows &= (first >= least[0]) | (shape * first >= LEAST_SHAPE)
        grows &= (last >= least[2]) | (shape * last >= LEAST_SHAPE)
        below, above = np.where(grows, shape, below), np.where(grows, above, shape)
    middle, *weights = _lobatto(below, second, third, a, b)
    return below * np.stack(weights), np.stack([a, middle, b])


def _lobatto(shape: Array, second: Array, third: Array, a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """The atom between a and b, and the weights of a, of it and of b; negative where there is no such law."""
    c2 = (shape + 1) * second
    c3, inside = c2 * (shape + 2) * third / (2 * second), np.maximum(-a * b - c2, 1e-300)
    middle = ((a + b) * c2 - c3) / inside
    proper = (middle > a) & (middle < b)
    middle = np.where(proper, middle, (a + b) / 2)
    from_a, to_b, width = middle - a, b - middle, b - a
    between = np.where(proper, inside / (from_a * to_b), -1.0)
    return middle, (c2 + b * middle) / (width * from_a), between, (c2 + a * middle) / (width * to_b)


def _log_tail(t: Array, second: Array, third: Array, fourth: Array, a: Array, b: Array, *, upper: bool) -> Array:
    """The tail at t of the law of mean 0 on [a, b] with these moments, by r*."""
    shapes, atoms = _three_atoms(second, third, fourth, a, b)
    beyond, certain = (t >= b, t <= a) if upper else (t <= a, t >= b)
    t = np.where(beyond | certain, 0.0, t)
    e = atoms - t
    s = _saddlepoint(t, shapes, e)
    ratio = e / (1 - s * e)
    root = np.sign(s) * np.sqrt(np.maximum(2 * (shapes * np.log1p(-s * e)).sum(0), 0))
    near = np.abs(root) < NEAR_MEAN
    skewness = 2 * (shapes * e * e * e).sum(0) / (shapes * e * e).sum(0) ** 1.5
    some = np.where(near, 1.0, root)
    wald = np.where(near, 1.0, s * np.sqrt((shapes * ratio * ratio).sum(0)))
    adjusted = root + np.where(near, skewness / 6, np.log(wald / some) / some)
    tail: Array = special.log_ndtr(-adjusted if upper else adjusted)
    return np.asarray(np.where(beyond, -np.inf, np.where(certain, 0.0, tail)))


def _saddlepoint(t: Array, shapes: Array, e: Array) -> Array:
    """The root s of sum_k n_k e_k / (1 - s e_k) = 0 with every 1 - s e_k > 0: one of the two roots of a quadratic."""
    square, constant = shapes.sum(0) * e.prod(0), -shapes.sum(0) * t
    linear = -(shapes * e * (e.sum(0) - e)).sum(0)
    half = -(linear + np.copysign(np.sqrt(np.maximum(linear**2 - 4 * square * constant, 0)), linear)) / 2
    roots = [np.divide(x, y, out=np.zeros_like(t), where=y != 0) for x, y in ((constant, half), (half, square))]
    inside = [(1 - root * e).min(0) for root in roots]
    found: Array = np.where(inside[0] >= inside[1], roots[0], roots[1])
    return found
