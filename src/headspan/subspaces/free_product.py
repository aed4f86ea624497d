r"""The edge of the spectrum of a product of two random matrices.

A B^T with independent A (m x r) and B (n x r), entries of variance 1. In the limit of large sides the squared singular
values over m n are the free multiplicative convolution of two Marchenko-Pastur laws of ratios r/m and r/n. Their
S-transforms are 1 / (1 + c z), those of independent factors multiply (Voiculescu 1987), and the largest point of the
support is the least value over z > 0 of

    x(z) = (1 + z)(1 + (r/m) z)(1 + (r/n) z) / z.

For square matrices that is 27/4, at z = 1/2: the norm of a product of two random matrices with entries of variance 1/n
tends to sqrt(27/4) = 2.598, not to 4.
"""

from __future__ import annotations

import math

import numpy as np

from headspan.errors import ShapeError


def product_edge(m: int, n: int, r: int) -> float:
    """The largest singular value of A B^T, A (m x r) and B (n x r) of standard normals, in the limit of large sides.

    > 0, at most (sqrt m + sqrt r)(sqrt n + sqrt r).
    """
    if min(m, n, r) < 1:
        raise ShapeError(f"a product needs sides of at least 1, found m={m}, n={n}, r={r}")
    c, e = r / m, r / n
    # x'(z) = 0 is 2 c e z^3 + (c + e + c e) z^2 - 1 = 0, which has one positive root.
    roots = np.roots([2 * c * e, c + e + c * e, 0.0, -1.0])
    z = float(max(root.real for root in roots if abs(root.imag) < 1e-9 * abs(root)))
    return math.sqrt(m * n * (1 + z) * (1 + c * z) * (1 + e * z) / z)
