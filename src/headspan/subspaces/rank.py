"""Numerical rank: how many singular values exceed an explicit share of the largest. The one place that decides it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.precision import promote, require_finite
from headspan.threads import one_thread


def default_tolerance(side: int, dtype: torch.dtype) -> float:
    """side * eps, `side` the longer one: what rounding alone can leave of a zero singular value, over the largest."""
    return side * float(torch.finfo(dtype).eps)


def require_tolerance(tolerance: float) -> None:
    """Raise unless `tolerance` is a share of the largest singular value."""
    if not 0 <= tolerance < 1:
        raise ArgumentError(
            f"tolerance is relative to the largest singular value and needs 0 <= it < 1, found {tolerance}"
        )


def checked_matrix(
    A: Float[Tensor, "*batch d p"], tolerance: float | None
) -> tuple[Float[Tensor, "*batch d p"], float]:
    """A in a precision to compute in and the tolerance to decide its rank by; raises unless A holds finite matrices."""
    if A.ndim < 2:
        raise ShapeError(f"a matrix needs shape [..., d, p], found {tuple(A.shape)}")
    A = promote(A, "matrix")
    require_finite(A, "matrix")
    tolerance = default_tolerance(max(A.shape[-2:]), A.dtype) if tolerance is None else tolerance
    require_tolerance(tolerance)
    return A, tolerance


def spectrum_rank(values: Float[Tensor, "*batch k"], tolerance: float) -> Int[Tensor, "*batch"]:
    """How many of the singular values, which descend, exceed `tolerance` times the first; 0 if all are 0."""
    return (values > tolerance * values[..., :1]).sum(-1)


@one_thread()
def numerical_rank(A: Float[Tensor, "*batch d p"], tolerance: float | None = None) -> Int[Tensor, "*batch"]:
    """The number of singular values above `tolerance` times the largest one.

    Parameters
    ----------
    A
        [..., d, p], real.
    tolerance
        Relative to the largest singular value; default max(d, p) * eps.

    Returns
    -------
    Tensor
        [...], int64, in [0, min(d, p)]. A random matrix has rank min(d, p); a zero matrix has rank 0.
    """
    A, tolerance = checked_matrix(A, tolerance)
    tall = A if A.shape[-2] >= A.shape[-1] else A.mT
    # By the small Gram matrix no more than half the digits would be left; QR keeps them all.
    return spectrum_rank(torch.linalg.svdvals(torch.linalg.qr(tall, mode="r").R), tolerance)
