r"""The Marchenko-Pastur law: how the singular values of a random rectangular matrix are distributed.

An m x n matrix with independent entries of mean 0 and standard deviation sigma has k = min(m, n) singular values that
need not be 0. With N = max(m, n) and c = k / N, the law of x = s^2 / (N sigma^2), in the limit of large sides, is

    f(x) = sqrt((b - x)(x - a)) / (2 pi c x)   on [a, b] = [(1 - sqrt c)^2, (1 + sqrt c)^2].

Substituting x = 1 + c - 2 sqrt(c) cos(t), t in [0, pi], the distribution function is closed and smooth,

    F = [2 sqrt(c) sin t + (1 + c) t - 2 (1 - c) atan(r tan(t / 2))] / (2 pi c),   r = (1 + sqrt c) / (1 - sqrt c),

and t itself comes from x without cancellation at either edge. At c = 1 the singular values follow the quarter circle
sqrt(4 - s^2) / pi on [0, 2] (times sqrt(N) sigma). The zeros that the larger Gram matrix has in excess are left out.

From 65,536 points on, both F and its inverse are read from a table made with these formulas, to 1e-10 and mostly
better. Near an edge they go like a power of the distance to it, so that no uniform table serves; in bins of equal
*ratio* all powers are alike:

1. of x in [0, 1] the distance v to the nearer end is tabulated, in 128 bins per octave down to 2^-80;
2. the bin is read off the bits of v as a float (its exponent and the first seven digits of its fraction), without a
   search or a logarithm;
3. a cubic through values and slopes at the ends of the bin has error below 1e-11 of the function for powers up to 2.

Points are worked on some thousands at a time, which stay in the cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError

Array = Float[np.ndarray, "..."]
Curve = Callable[[Array, bool], tuple[Array, Array]]
"""Values and slopes d/dv at distances v from the lower (False) or upper (True) end."""

_DIGITS, _LOWEST = 7, -80
_SHIFT = 52 - _DIGITS
_FIRST = (1023 + _LOWEST) << _DIGITS
_BINS = ((-1 - _LOWEST) << _DIGITS) + 1
_CHUNK = 16384
_HALVINGS = 56
_MANY = 2**16
"""Points from which a table pays."""
_SURE = 2.0**-44
"""A share below which the distribution function's own rounding shows; there the power law at the edge is continued."""


def _sides(m: int, n: int) -> tuple[int, float]:
    """N and c of an m x n matrix."""
    if min(m, n) < 1:
        raise ArgumentError(f"a matrix needs at least one row and one column, found {m} x {n}")
    return max(m, n), min(m, n) / max(m, n)


def mp_edges(m: int, n: int, sigma: float = 1.0) -> tuple[float, float]:
    """sigma |sqrt m - sqrt n| and sigma (sqrt m + sqrt n): between them lie the singular values of random matrices."""
    _sides(m, n)
    return sigma * abs(math.sqrt(m) - math.sqrt(n)), sigma * (math.sqrt(m) + math.sqrt(n))


def mp_density(s: Float[Tensor, "*shape"], m: int, n: int, sigma: float = 1.0) -> Float[Tensor, "*shape"]:
    """The density of a singular value s of a random m x n matrix; >= 0, 0 outside the edges, integral 1."""
    N, c = _sides(m, n)
    low, high = mp_edges(m, n, sigma)
    inside = (s > low) & (s < high)
    kept = torch.where(inside, s.double(), 0.5 * (low + high))
    # In s the law has density 2 s f(s^2 / (N sigma^2)) / (N sigma^2); s cancels one power of x.
    values = ((high - kept) * (high + kept) * (kept - low) * (kept + low)).sqrt() / (math.pi * c * N * sigma**2 * kept)
    return torch.where(inside, values, 0.0)


def _distribution(t: Tensor, c: float) -> Tensor:
    """F at the angle t."""
    root = math.sqrt(c)
    turned = torch.atan2((1 + root) * (t / 2).sin(), (1 - root) * (t / 2).cos())
    return (2 * root * t.sin() + (1 + c) * t - 2 * (1 - c) * turned) / (2 * math.pi * c)


def mp_cdf(s: Float[Tensor, "*shape"], m: int, n: int, sigma: float = 1.0) -> Float[Tensor, "*shape"]:
    """The share of singular values up to s of a random m x n matrix.

    Parameters
    ----------
    s
        Any shape; anything below the lower edge gives 0, above the upper edge 1.
    m, n, sigma
        Sides of the matrix and standard deviation of its entries.

    Returns
    -------
    Tensor
        float64, in [0, 1]; uniform under the null (s a singular value picked at random). Error about 1e-16 / c.

    References
    ----------
    Marchenko and Pastur (1967), Distribution of eigenvalues for some sets of random matrices.
    """
    _, c = _sides(m, n)
    low, high = mp_edges(m, n, sigma)
    if s.numel() >= _MANY and s.device.type == "cpu":
        scale = 1 / ((high - low) * (high + low))
        return _tabulated(_cdf_table(c), s, lambda x: x * np.abs(x) * scale - low * low * scale)
    s = s.double().clamp(low, high)
    t = 2 * torch.atan2(((s - low) * (s + low)).sqrt(), ((high - s) * (high + s)).sqrt())
    return _distribution(t, c).clamp(0, 1)


def mp_quantile(share: Float[Tensor, "*shape"], m: int, n: int, sigma: float = 1.0) -> Float[Tensor, "*shape"]:
    """The singular value below which a share of the law lies: the inverse of `mp_cdf`, by bisection in the angle."""
    N, c = _sides(m, n)
    least, most = share.aminmax() if share.numel() else (share.sum(), share.sum())
    if least < 0 or most > 1:
        raise ArgumentError("a quantile is asked for at shares in [0, 1]")
    if share.numel() >= _MANY and share.device.type == "cpu":
        return _tabulated(_quantile_table(c) * (sigma * math.sqrt(N)), share, lambda x: x)
    return sigma * math.sqrt(N) * _root(_angle(share.double(), c), c)


def _angle(share: Tensor, c: float) -> Tensor:
    """t with F(t) = share."""
    low, high = torch.zeros_like(share), torch.full_like(share, math.pi)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = _distribution(middle, c) < share
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return low


def _root(t: Tensor, c: float) -> Tensor:
    """sqrt(x) at the angle t: 1 + c - 2 sqrt(c) cos t without cancellation at a square matrix's lower edge, at 0."""
    root = math.sqrt(c)
    return ((1 - root) ** 2 + 4 * root * (t / 2).sin() ** 2).sqrt()


def _edge_table(curve: Curve) -> Float[np.ndarray, "rows 4"]:
    """Coefficients of the cubic of every bin, those counted from the lower end first."""
    node = (np.arange(_FIRST, _FIRST + _BINS + 1, dtype=np.int64) << _SHIFT).view(np.float64)
    width = np.diff(node)
    halves = []
    for upper in (False, True):
        value, slope = curve(np.minimum(node, 0.5), upper)
        rise, first, last = np.diff(value) / width, slope[:-1], slope[1:]
        square, cube = (3 * rise - 2 * first - last) / width, (first + last - 2 * rise) / width**2
        rows = np.stack([value[:-1], first, square, cube], axis=1)
        rows[-1, 1:] = 0.0  # v = 1/2 itself
        # All that is nearer than the first node lies on the line to the end's own value.
        end = curve(np.zeros(1), upper)[0][0]
        rows[0] = value[0], (value[0] - end) / node[0], 0.0, 0.0
        halves.append(rows)
    return np.concatenate(halves)


def _from_table(
    table: Float[np.ndarray, "rows 4"],
    points: Float[np.ndarray, " n"],
    place: Callable[[Array], Array] = lambda x: x,
) -> Float[np.ndarray, " n"]:
    """The tabulated function at x = place(points); x outside [0, 1] counts as the nearer end, NaN stays NaN."""
    out = np.empty_like(points)
    for i in range(0, len(points), _CHUNK):
        piece = place(points[i : i + _CHUNK])
        v = 1.0 - piece
        upper = v < piece
        np.minimum(v, piece, out=v)
        np.maximum(v, 0.0, out=v)
        bits = v.view(np.int64) >> _SHIFT
        np.maximum(bits, _FIRST, out=bits)
        v -= (bits << _SHIFT).view(np.float64)
        bits -= _FIRST
        bits += np.multiply(upper, _BINS)
        rows = table.take(bits, axis=0, mode="clip")
        result = out[i : i + _CHUNK]
        np.multiply(rows[:, 3], v, out=result)
        for k in (2, 1, 0):
            result += rows[:, k]
            if k:
                result *= v
    return out


def _tabulated(table: Array, points: Tensor, place: Callable[[Array], Array]) -> Tensor:
    flat = points.detach().double().contiguous().reshape(-1).numpy()
    return torch.as_tensor(_from_table(table, flat, place)).reshape(points.shape)


@functools.lru_cache(maxsize=8)
def _cdf_table(c: float) -> Array:
    """F against w = sin^2(t/2), the share of the way from x = a to x = b; dF/dw = 4 sin t / (pi x)."""

    def curve(v: Array, upper: bool) -> tuple[Array, Array]:
        w = torch.as_tensor(v)
        near, far = w.sqrt(), (1 - w).sqrt()
        t = 2 * (torch.atan2(far, near) if upper else torch.atan2(near, far))
        slope = 8 * near * far / (math.pi * _root(t, c).square())
        return _distribution(t, c).numpy(), np.nan_to_num((-slope if upper else slope).numpy())

    return _edge_table(curve)


@functools.lru_cache(maxsize=8)
def _quantile_table(c: float) -> Array:
    """sqrt(x) against the share; d sqrt(x) / dF = pi sqrt(c x) / (2 sin t)."""

    def curve(v: Array, upper: bool) -> tuple[Array, Array]:
        kept = torch.as_tensor(np.maximum(v, _SURE))
        t = _angle(1 - kept if upper else kept, c)
        value = _root(t, c)
        slope = math.pi * math.sqrt(c) * value / (2 * t.sin()) * (-1 if upper else 1)
        edge = 1 + math.sqrt(c) if upper else 1 - math.sqrt(c)
        power = 1.0 if c == 1 and not upper else 2 / 3
        ratio = torch.as_tensor(v) / kept
        near = torch.as_tensor(v) < _SURE
        value = torch.where(near, edge + (value - edge) * ratio**power, value)
        continued = power * (value - edge) / torch.as_tensor(np.maximum(v, 2.0**-1000))
        return value.numpy(), torch.where(near, continued, slope).numpy()

    return _edge_table(curve)


def mp_typical(m: int, n: int, sigma: float = 1.0) -> Float[Tensor, " k"]:
    """The min(m, n) singular values that the law expects, descending: its quantiles at (i - 1/2) / k."""
    k = min(m, n)
    return mp_quantile((torch.arange(k, dtype=torch.float64).flip(0) + 0.5) / k, m, n, sigma)
