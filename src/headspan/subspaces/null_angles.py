"""Angles of null spaces from the angles of row spaces, without a basis of either null space.

Let R_Q and R_K have dimensions p and q in R^d, N_Q and N_K be their complements and theta the k = min(p, q) principal
angles of R_Q and R_K. The two-projections theorem splits R^d into planes, on each of which the pairs of subspaces are
pairs of lines, and the rest, where every angle is 0 or pi/2. Counting dimensions gives the other angles:

1. N_Q, N_K: the same angles as R_Q, R_K except for zeros. With d >= p + q there are d - p - q zeros more,
   with d < p + q there are p + q - d fewer (R_Q and R_K then must meet in that many dimensions).
2. R_Q, N_K: pi/2 - theta, plus p - k zeros, less the p + q - d largest if d < p + q.
3. N_Q, R_K: the same with p and q exchanged.
4. dim(N_Q and N_K together) = d - p - q + dim(R_Q and R_K together).

Every count of 0 and pi/2 is exact; no tolerance enters except in the dimension of step 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import DegenerateSubspace, ShapeError


@dataclass(frozen=True)
class NullAngles:
    """Principal angles that involve null spaces, each ascending, in [0, pi/2].

    Parameters
    ----------
    null_null
        [..., d - max(p, q)]: N_Q with N_K.
    row_null
        [..., min(p, d - q)]: R_Q with N_K.
    null_row
        [..., min(d - p, q)]: N_Q with R_K.
    """

    null_null: Float[Tensor, "*batch a"]
    row_null: Float[Tensor, "*batch b"]
    null_row: Float[Tensor, "*batch c"]


def _check(theta: Tensor, d: int, p: int, q: int) -> None:
    if not (0 <= p <= d and 0 <= q <= d):
        raise ShapeError(f"dimensions p and q need to be in [0, d={d}], found p={p}, q={q}")
    if theta.shape[-1] != min(p, q):
        raise ShapeError(f"dimensions p={p} and q={q} need min(p, q) angles, found {theta.shape[-1]}")
    if bool(theta.isnan().any()):
        raise DegenerateSubspace(
            f"null-space angles need all {min(p, q)} row-space angles, found NaN (a member of lower rank); "
            "group the members by rank and pass the true dimensions"
        )


def null_space_angles(theta: Float[Tensor, "*batch k"], d: int, p: int, q: int) -> NullAngles:
    """The angles N_Q-N_K, R_Q-N_K and N_Q-R_K from those of R_Q-R_K.

    Parameters
    ----------
    theta
        [..., min(p, q)], ascending: principal angles of the row spaces.
    d, p, q
        Ambient dimension and true dimensions (ranks) of R_Q and R_K, shared by the batch.

    Returns
    -------
    NullAngles
        By chance, with p + q <= d: d - p - q exact zeros in `null_null`, and `row_null`, `null_row` small, since the
        row spaces are close to orthogonal.

    References
    ----------
    Halmos (1969), Two subspaces; Knyazev and Argentati (2006), Majorization for changes in angles, Theorem 2.7.
    """
    _check(theta, d, p, q)
    k, forced = min(p, q), max(0, p + q - d)
    flipped = (math.pi / 2 - theta).flip(-1)[..., : k - forced]
    return NullAngles(
        null_null=_with_zeros(theta[..., forced:], max(0, d - p - q)),
        row_null=_with_zeros(flipped, p - k),
        null_row=_with_zeros(flipped, q - k),
    )


def _with_zeros(angles: Tensor, count: int) -> Tensor:
    return torch.nn.functional.pad(angles, (count, 0))


def shared_null_dimension(
    theta: Float[Tensor, "*batch k"], d: int, p: int, q: int, tolerance: float = 1e-9
) -> Int[Tensor, "*batch"]:
    """dim(N_Q intersected with N_K) = d - p - q + #{theta_i <= tolerance}.

    Parameters
    ----------
    theta, d, p, q
        As for `null_space_angles`.
    tolerance
        Largest angle in radians at which two directions count as one.

    Returns
    -------
    Tensor
        [...], int64, in [max(0, d - p - q), d - max(p, q)]; max(0, d - p - q) by chance.
    """
    _check(theta, d, p, q)
    # p + q > d forces common directions; rounding may leave their angles above the tolerance, counting may not.
    shared = (theta <= tolerance).sum(-1).clamp(min=max(0, p + q - d))
    return d - p - q + shared
