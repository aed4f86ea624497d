r"""Numerical rank: how many singular values are more than rounding. The one place that decides it.

A singular value of a [d, p] matrix counts if it exceeds both

- what computing leaves of a zero: max(d, p) eps of the largest singular value, eps that of the dtype computed in;
- what storing leaves of a zero: 2 n (sqrt d + sqrt p), with n the root mean square of the error of an entry (`noise`).
  Independent errors of that size have a largest singular value of n (sqrt d + sqrt p). For a floating format
  n = u rms(W), u its unit roundoff (`unit_roundoff`); for a quantizer with steps of size s, n = s / sqrt(12).

The second is not d eps of the stored dtype: in half precision that would call every head zero. Errors of rounding are
u / sqrt(3) of an entry or less, so that the 2 leaves a factor of three or more for entries of unequal size.

The numerical contract every kernel of this folder keeps.

1. Half precision is promoted to float32 on entry; float32 and float64 stay what they are.
2. NaN or Inf in the input raises: a span of NaN is not a subspace.
3. A value that mathematics confines to an interval may leave it by rounding only. Excess of rounding size is
   clipped; anything larger means a broken basis or a bug, and raises instead of being hidden.
"""

from __future__ import annotations

import functools
import math
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError
from headspan.threads import one_thread

Noise = TypeVar("Noise", Tensor, float)


def default_tolerance(side: int, dtype: torch.dtype) -> float:
    """side * eps, `side` the longer one: what rounding alone can leave of a zero singular value, over the largest."""
    return side * float(torch.finfo(dtype).eps)


def unit_roundoff(dtype: torch.dtype) -> float:
    """u = eps / 2: the largest relative error of rounding to this dtype."""
    return float(torch.finfo(dtype).eps) / 2


def noise_floor(noise: Noise, d: int, p: int) -> Noise:
    """2 noise (sqrt d + sqrt p): a singular value of a [d, p] matrix up to this may be what storing left of a zero.

    Parameters
    ----------
    noise
        Root mean square of the error of an entry.
    d, p
        Sides of the matrix, in either order.
    """
    return noise * (2 * (math.sqrt(d) + math.sqrt(p)))


def require_tolerance(tolerance: float) -> None:
    """Raise unless `tolerance` is a share of the largest singular value."""
    if not 0 <= tolerance < 1:
        raise ArgumentError(
            f"tolerance is relative to the largest singular value and needs 0 <= it < 1, found {tolerance}"
        )


def checked_matrix(
    A: Float[Tensor, "*batch d p"], tolerance: float | None, noise: Tensor | float
) -> tuple[Float[Tensor, "*batch d p"], float, Float[Tensor, "*batch"]]:
    """A in a precision to compute in, the tolerance and the floor that decide its rank; A must be finite matrices."""
    if A.ndim < 2:
        raise ShapeError(f"a matrix needs shape [..., d, p], found {tuple(A.shape)}")
    A = promote(A, "matrix")
    require_finite(A, "matrix")
    d, p = A.shape[-2:]
    tolerance = default_tolerance(max(d, p), A.dtype) if tolerance is None else tolerance
    require_tolerance(tolerance)
    errors = torch.as_tensor(noise, dtype=A.dtype, device=A.device)
    return A, tolerance, noise_floor(errors, d, p).expand(A.shape[:-2])


def spectrum_rank(
    values: Float[Tensor, "*batch k"], tolerance: float, floor: Tensor | float = 0.0
) -> Int[Tensor, "*batch"]:
    """How many of the singular values, which descend, exceed `tolerance` times the first, and `floor`; 0 if all are 0.

    `floor` is a number or [...], one for each spectrum.
    """
    least = torch.as_tensor(floor, dtype=values.dtype, device=values.device)[..., None]
    return (values > torch.maximum(tolerance * values[..., :1], least)).sum(-1)


@one_thread()
def numerical_rank(
    A: Float[Tensor, "*batch d p"], tolerance: float | None = None, noise: Tensor | float = 0.0
) -> Int[Tensor, "*batch"]:
    """The number of singular values above `tolerance` times the largest one and above what `noise` leaves of a zero.

    Parameters
    ----------
    A
        [..., d, p], real.
    tolerance
        Relative to the largest singular value; default max(d, p) * eps.
    noise
        Root mean square of the error of an entry, a number or [...], one for each matrix; see the module's text.

    Returns
    -------
    Tensor
        [...], int64, in [0, min(d, p)]. A random matrix has rank min(d, p); a zero matrix has rank 0.
    """
    A, tolerance, floor = checked_matrix(A, tolerance, noise)
    tall = A if A.shape[-2] >= A.shape[-1] else A.mT
    # By the small Gram matrix no more than half the digits would be left; QR keeps them all.
    return spectrum_rank(torch.linalg.svdvals(torch.linalg.qr(tall, mode="r").R), tolerance, floor)


DEFAULT_MEMORY = 256 * 2**20


def promote(x: Tensor, what: str = "tensor") -> Tensor:
    """`x` as float32 (from half precision) or unchanged (float32, float64); other dtypes raise."""
    if x.dtype in (torch.float32, torch.float64):
        return x
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.to(torch.float32)
    raise ShapeError(f"{what} needs a real floating dtype, found {x.dtype}; convert it with .to(torch.float64)")


def common_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors in the widest of their promoted dtypes."""
    dtype = functools.reduce(torch.promote_types, (promote(x).dtype for x in tensors))
    return tuple(x.to(dtype) for x in tensors)


def require_finite(x: Tensor, what: str) -> None:
    """Raise if `x` holds NaN or Inf, saying how many."""
    # One reduction settles the common case: a finite sum has no NaN and no Inf in it.
    if bool(torch.isfinite(x.sum())):
        return
    bad = int((~torch.isfinite(x)).sum())
    if bad:
        raise DegenerateSubspace(
            f"{what} of shape {tuple(x.shape)} needs finite entries, found {bad} NaN or Inf; "
            "check the weights it was read from"
        )


def epsilon(x: Tensor) -> float:
    """The distance from 1 to the next number in the dtype of `x`."""
    return float(torch.finfo(x.dtype).eps)


def clip_rounding(x: Tensor, lower: float, upper: float | Tensor, tolerance: float | Tensor, what: str) -> Tensor:
    """Clip `x` to [lower, upper] where it leaves the interval by at most `tolerance`; raise where by more.

    Parameters
    ----------
    x
        Any shape; NaN is left alone, since it already says "undefined".
    lower, upper, tolerance
        Numbers, or tensors that broadcast with `x`.
    what
        The quantity's name, for the message.

    Returns
    -------
    Tensor
        Shape of `x`, every entry in [lower, upper] or NaN.
    """
    excess = torch.maximum(lower - x, x - upper)
    if bool((excess > tolerance).any()):
        worst = float(excess[excess > tolerance].max())
        raise DegenerateSubspace(
            f"{what} must stay in its range up to rounding, found one {worst:.3g} outside; "
            "the bases are not orthonormal (build them with orthonormal_basis)"
        )
    return torch.minimum(torch.clamp(x, min=lower), torch.as_tensor(upper, dtype=x.dtype, device=x.device))
