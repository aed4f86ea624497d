r"""Projection kernels from sketches: every basis U [d, p] reduced to Y = U^T Phi [p, m], one Gaussian Phi for all.

With C = U^T V, s = ||C||_F^2 = PK (the kernel), s' = ||C C^T||_F^2 <= s, and X = ||Y_U Y_V^T / m||_F^2:

    E X = s (1 + 1/m) + pq/m,    so that    PK^ = (X - pq/m) / (1 + 1/m)    is unbiased;

    m^4 Var X =   m^3 (4 s + 4 s')
                + m^2 (2 p q + 8 (p + q) s + 2 s^2 + 12 s + 8 s')
                + m   (2 p q (p + q + 1) + 4 p q s + 8 (p + q) s + 2 s^2 + 16 s + 4 s').

Both are exact: Wick's theorem for the Gaussian columns of (Y_U, Y_V), 3 and 105 pairings. For unrelated spaces (s = 0)
the variance is 2pq(m + p + q + 1) / m^3. It grows with the kernel, and s' = s bounds it for a kernel of that size.
X is a sum of squares, skewed to the right: its lower tail is shorter than a normal one of that variance, its upper tail
longer. Of confidence statements the lower tail is what matters: a high kernel must not look low.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError

_GRID = 256


def gaussian_sketch(
    d: int, m: int, seed: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Float[Tensor, "d m"]:
    """Phi: independent standard normal entries, the same for a seed whatever the precision, up to rounding."""
    if m < 1 or d < 1:
        raise ArgumentError(f"a sketch needs at least one row and one column, found {d} and {m}")
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(d, m, generator=generator, dtype=torch.float64).to(device, dtype)


def kernel_estimate(
    overlap: Float[Tensor, "n m"], p: Float[Tensor, "n 1"], q: Float[Tensor, "1 m"], width: int
) -> Float[Tensor, "n m"]:
    """The unbiased PK^ from ||Y_U Y_V^T||_F^2, which is not divided by anything yet.

    Parameters
    ----------
    overlap
        ||Y_U Y_V^T||_F^2 of every pair.
    p, q, width
        True dimensions, and m, the columns of the sketch.

    Returns
    -------
    Tensor
        On average the kernel, pq/d under the null; a single value may be negative or above min(p, q).
    """
    return (overlap / width**2 - p * q / width) / (1 + 1 / width)


def kernel_standard_error(
    kernel: Float[Tensor, "*pairs"], p: int | Float[Tensor, "*_p"], q: int | Float[Tensor, "*_q"], width: int
) -> Float[Tensor, "*_out"]:
    """Upper bound of the standard deviation of PK^ for a pair whose true kernel is `kernel`; exact at kernel 0.

    The bound takes s' = s, which holds with equality if every common direction is common entirely. In (0, inf).
    """
    s, m = kernel.clamp(min=0), float(width)
    third = 8 * s
    second = 2 * p * q + 8 * (p + q) * s + 2 * s**2 + 20 * s
    first = 2 * p * q * (p + q + 1) + 4 * p * q * s + 8 * (p + q) * s + 2 * s**2 + 20 * s
    variance: Tensor = (third / m + second / m**2 + first / m**3) / (1 + 1 / m) ** 2
    return variance.sqrt()


def lowest_plausible(kernel: float, p: int, q: int, width: int, failure: float) -> float:
    """The estimate below which a pair of true kernel `kernel` or more falls with probability about `failure` at most.

    min over x in [kernel, min(p, q)] of x - z sd(x), z the normal quantile of `failure`.
    """
    z = NormalDist().inv_cdf(1 - failure)
    x = torch.linspace(kernel, max(kernel, float(min(p, q))), _GRID, dtype=torch.float64)
    return float((x - z * kernel_standard_error(x, p, q, width)).min())
