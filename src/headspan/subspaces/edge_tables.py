r"""Functions on [0, 1] with power laws at both ends, read from a table.

A distribution function near an edge goes like a power of the distance, so that its higher derivatives are unbounded
there and no uniform table serves. In bins of equal *ratio* they are all alike: at v the k-th derivative times v^k stays
of the function's own size. So:

1. of x in [0, 1] the distance v to the nearer end is tabulated, in 128 bins per octave down to 2^-80;
2. the bin is read off the bits of v as a float (its exponent and the first seven digits of its fraction), without a
   search or a logarithm;
3. a cubic through values and slopes at the ends of the bin has error below 1e-11 of the function for powers up to 2.

Points are worked on some thousands at a time, which stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Array = Float[np.ndarray, "..."]
Curve = Callable[[Array, bool], tuple[Array, Array]]
"""Values and slopes d/dv at distances v from the lower (False) or upper (True) end."""

DIGITS, LOWEST = 7, -80
SHIFT = 52 - DIGITS
FIRST = (1023 + LOWEST) << DIGITS
BINS = ((-1 - LOWEST) << DIGITS) + 1
CHUNK = 16384


def edge_table(curve: Curve) -> Float[np.ndarray, "rows 4"]:
    """Coefficients of the cubic of every bin, those counted from the lower end first."""
    node = (np.arange(FIRST, FIRST + BINS + 1, dtype=np.int64) << SHIFT).view(np.float64)
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


def from_table(
    table: Float[np.ndarray, "rows 4"],
    points: Float[np.ndarray, " n"],
    place: Callable[[Array], Array] = lambda x: x,
) -> Float[np.ndarray, " n"]:
    """The tabulated function at x = place(points); x outside [0, 1] counts as the nearer end, NaN stays NaN."""
    out = np.empty_like(points)
    for i in range(0, len(points), CHUNK):
        piece = place(points[i : i + CHUNK])
        v = 1.0 - piece
        upper = v < piece
        np.minimum(v, piece, out=v)
        np.maximum(v, 0.0, out=v)
        bits = v.view(np.int64) >> SHIFT
        np.maximum(bits, FIRST, out=bits)
        v -= (bits << SHIFT).view(np.float64)
        bits -= FIRST
        bits += np.multiply(upper, BINS)
        rows = table.take(bits, axis=0, mode="clip")
        result = out[i : i + CHUNK]
        np.multiply(rows[:, 3], v, out=result)
        for k in (2, 1, 0):
            result += rows[:, k]
            if k:
                result *= v
    return out
