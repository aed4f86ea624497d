r"""The squared overlap of two matrices when one of them is turned at random: its moments and its upper tail.

Null: A [d, p] and B [d, q] keep their singular values, and one of them is rotated by a Haar orthogonal matrix. With the
energy shares a_i = s_i^2 / sum s^2 of A, and b_j of B, the normalised overlap is

    C^2 = ||A^T R B||_F^2 / (||A||_F^2 ||B||_F^2) = sum_ij a_i b_j x_ij^2,

x being a corner of a Haar matrix. Its fourth moments give mean 1/d and, with A2 = sum a_i^2 and B2 = sum b_j^2,

    E C^4 = (3 A2 B2 + A2 (1 - B2) + (1 - A2) B2) / (d (d + 2)) + (1 - A2)(1 - B2)(d + 1) / (d (d - 1)(d + 2)).

The largest value aligns the two spectra in order, sum_i a_(i) b_(i); the smallest aligns them against the order. A Beta
law on that interval with the same mean and variance gives the tail. With flat spectra this is the law of `chance`,
divided by pq. Reference: the moments are those of Haar matrices (Collins and Sniady 2006).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.statistics.tails import log_betainc


def energy_shares(values: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
    """Squared singular values as shares of their sum, descending; NaN for a zero matrix. In [0, 1], 1/p if flat."""
    energy = values.square().sort(-1, descending=True).values
    total = energy.sum(-1, keepdim=True)
    return torch.where(total > 0, energy / total, torch.nan)


def rotation_variance(a: Float[Tensor, "n p"], b: Float[Tensor, "m q"], d: int) -> Float[Tensor, "n m"]:
    """Variance of C^2 under a random rotation, for every pair of spectra given as energy shares. In [0, 1]."""
    if d < 2:
        raise ShapeError(f"a rotation needs at least 2 dimensions, found {d}")
    A2, B2 = a.square().sum(-1)[:, None], b.square().sum(-1)[None, :]
    one_shared = 3 * A2 * B2 + A2 * (1 - B2) + (1 - A2) * B2
    none_shared = (1 - A2) * (1 - B2) * (d + 1) / (d - 1)
    return ((one_shared + none_shared) / (d * (d + 2)) - 1 / d**2).clamp(min=0)


def log_rotation_tail(
    overlap: Float[Tensor, "n m"], a: Float[Tensor, "n p"], b: Float[Tensor, "m q"], d: int
) -> Float[Tensor, "n m"]:
    """log P(C^2 >= overlap) under a random rotation that keeps both spectra.

    Parameters
    ----------
    overlap
        Observed C^2 of every pair; NaN stays NaN.
    a, b
        Energy shares of the two sides, descending (see `energy_shares`).
    d
        Ambient dimension.

    Returns
    -------
    Tensor
        float64, in [-inf, 0]; log of a uniform variable by chance.
    """
    a, b = a.double(), b.double()
    variance = rotation_variance(a, b, d)
    k = min(a.shape[-1], b.shape[-1])
    high = a[:, :k] @ b[:, :k].mT
    low = _smallest(a, b, d)
    width = high - low
    share = (1 / d - low) / width
    total = share * (1 - share) * width.square() / variance - 1
    x = ((overlap.double() - low) / width).clamp(0, 1)
    known = ~(x.isnan() | total.isnan()) & (variance > 0) & (width > 0)
    out = torch.full_like(x, torch.nan)
    alpha, beta = (share * total)[known], ((1 - share) * total)[known]
    arrays = (part.cpu().numpy() for part in (1 - x[known], x[known], beta, alpha))
    out[known] = torch.as_tensor(log_betainc(*arrays), dtype=torch.float64).to(out.device)
    return out


def _smallest(a: Tensor, b: Tensor, d: int) -> Tensor:
    """The least C^2 that any rotation reaches: 0 unless the two sides together have more than d directions."""
    forced = a.shape[-1] + b.shape[-1] - d
    if forced <= 0:
        return a.new_zeros(len(a), len(b))
    return a[:, -forced:] @ b[:, -forced:].flip(-1).mT
