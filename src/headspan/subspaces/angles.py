"""Principal angles between subspaces, accurate at both ends.

The cosines of the principal angles are the singular values of U^T V, the sines those of (I - V V^T) U
(Björck and Golub 1973). A cosine of 1 - 1e-18 is stored as 1, so a cosine cannot carry a small angle, and a sine
cannot carry one near pi/2. Steps:

1. cosines of every pair, from the singular values of the small matrix U^T V;
2. sines only for pairs that have an angle below pi/4, since they cost a decomposition of height d;
3. each angle from its sine below pi/4 and from its cosine above (Knyazev and Argentati 2002).

Ranks are the true ones: with ranks r and s there are min(r, s) angles, and the places beyond are NaN.

The angles of null spaces follow from those of row spaces, without a basis of either null space. Let R_Q and R_K have
dimensions p and q in R^d, N_Q and N_K be their complements and theta the k = min(p, q) principal angles of R_Q and R_K.
The two-projections theorem splits R^d into planes, on each of which the pairs of subspaces are pairs of lines, and the
rest, where every angle is 0 or pi/2. Counting dimensions gives the other angles:

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

from headspan.errors import ArgumentError, DegenerateSubspace, MemoryBudgetError, ShapeError
from headspan.subspaces.lattice import marked_residual, require_same_ambient
from headspan.subspaces.rank import DEFAULT_MEMORY, clip_rounding, common_dtype, epsilon
from headspan.subspaces.subspace import Subspace
from headspan.threads import one_thread


def principal_cosines(S: Subspace, T: Subspace) -> Float[Tensor, "*batch k"]:
    """Cosines of the principal angles, c_i = sigma_i(U^T V), largest first.

    Parameters
    ----------
    S, T
        Batches of one R^d, dimensions p and q; batch axes broadcast.

    Returns
    -------
    Tensor
        [..., k = min(p, q) of the widths], in [0, 1], descending; NaN beyond the smaller rank. An absolute error of
        about eps makes them good for angles near pi/2. Under the null the squares average max(p, q)/d and reach up
        to about (sqrt(p (d - q)) + sqrt(q (d - p)))^2 / d^2.

    References
    ----------
    Björck and Golub (1973), Numerical methods for computing angles between linear subspaces, Theorem 1.
    """
    require_same_ambient(S, T)
    U, V = common_dtype(S.basis, T.basis)
    with one_thread():
        cosines = torch.linalg.svdvals(U.mT @ V)
    # Rounding leaves sigma above 1 by a small multiple of eps; more than this is a basis that is not orthonormal.
    cosines = clip_rounding(cosines, 0.0, 1.0, 8 * S.ambient * epsilon(U), "cosine of a principal angle")
    return _undefined_beyond(cosines, torch.minimum(S.rank, T.rank))


def principal_sines(S: Subspace, T: Subspace) -> Float[Tensor, "*batch k"]:
    """Sines of the principal angles, s_i = sigma_i((I - V V^T) U), smallest first.

    Parameters
    ----------
    S, T
        Batches of one R^d; batch axes broadcast.

    Returns
    -------
    Tensor
        [..., min(p, q) of the widths], in [0, 1], ascending; NaN beyond the smaller rank. An absolute error of about
        eps makes them good for small angles. Under the null the squares average 1 - max(p, q)/d.
    """
    require_same_ambient(S, T)
    if S.width > T.width:
        S, T = T, S
    U, V = common_dtype(S.basis, T.basis)
    with one_thread():
        sines = torch.linalg.svdvals(marked_residual(U, V, S.rank)).flip(-1)
    # If a member of S has the larger rank, its surplus sines are exactly 1 and sort behind the genuine ones.
    sines = _undefined_beyond(sines, torch.minimum(S.rank, T.rank))
    return clip_rounding(sines, 0.0, 1.0, 8 * S.ambient * epsilon(U), "sine of a principal angle")


def _undefined_beyond(values: Tensor, count: Tensor) -> Tensor:
    place = torch.arange(values.shape[-1], device=values.device)
    return torch.where(place < count[..., None], values, torch.full_like(values, torch.nan))


def principal_angles(S: Subspace, T: Subspace) -> Float[Tensor, "*batch k"]:
    """Principal angles between paired subspaces, theta_i in [0, pi/2], smallest first.

    Parameters
    ----------
    S, T
        Batches of one R^d; batch axes broadcast (pairs, not all combinations: see `pairwise_principal_angles`).

    Returns
    -------
    Tensor
        [..., min(p, q) of the widths], radians, ascending; NaN beyond the smaller rank. Absolute error about eps at
        both ends, so an angle of 1e-9 and the gap of one to pi/2 are both good to about 1e-7 in float64.
        For their values under the null see `random_angles.angle_null`; all are pi/2 in the limit of large d.

    References
    ----------
    Knyazev and Argentati (2002), Principal angles between subspaces in an A-based scalar product, Algorithm 3.1.
    """
    cosines = principal_cosines(S, T)
    angles = torch.acos(cosines)
    near = (cosines**2 > 0.5).any(-1)
    if not bool(near.any()):
        return angles
    batch = near.shape
    pick = near.reshape(-1).nonzero().squeeze(-1)
    flat = angles.reshape(-1, angles.shape[-1])
    sines = principal_sines(_members(S, batch, pick), _members(T, batch, pick))
    small = cosines.reshape(flat.shape)[pick] ** 2 > 0.5
    flat = flat.index_copy(0, pick, torch.where(small, torch.asin(sines), flat[pick]))
    return flat.reshape(angles.shape)


def _members(S: Subspace, batch: torch.Size, pick: Tensor) -> Subspace:
    """Members of S, broadcast to `batch`, at the flat positions `pick`; copies only those."""
    if S.batch_shape == batch:
        place = pick
    else:
        own = torch.arange(S.rank.numel(), device=pick.device).reshape(S.batch_shape)
        place = own.expand(batch).reshape(-1)[pick]
    return S.reshape(-1)[place]


def pairwise_principal_angles(S: Subspace, T: Subspace, memory: int = DEFAULT_MEMORY) -> Float[Tensor, "n m k"]:
    """Principal angles of every member of one batch with every member of another.

    Parameters
    ----------
    S, T
        One-axis batches, n and m members of one R^d.
    memory
        Scratch space in bytes, result not counted.

    Returns
    -------
    Tensor
        [n, m, min(p, q)], as `principal_angles`.
    """
    require_same_ambient(S, T)
    n, m, k = S.rank.numel(), T.rank.numel(), min(S.width, T.width)
    dtype = torch.promote_types(S.basis.dtype, T.basis.dtype)
    # Per pair: the small product, the residual with its marks, and the gathered bases of both sides.
    item = torch.finfo(dtype).bits // 8
    unit = item * (S.width * T.width + 2 * (S.ambient + k) * k + S.ambient * (S.width + T.width))
    if unit > memory:
        raise MemoryBudgetError(f"one pair of bases needs {unit} bytes, the budget is {memory}; raise `memory`")
    per_tile = max(1, memory // unit)
    out = torch.empty(n, m, k, dtype=dtype, device=S.basis.device)
    rows, columns = max(1, per_tile // max(m, 1)), min(max(m, 1), per_tile)
    for i in range(0, n, rows):
        for j in range(0, m, columns):
            tile = principal_angles(S[i : i + rows, None], T[None, j : j + columns])
            out[i : i + rows, j : j + columns] = tile
    return out


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


def _require_angles(theta: Tensor, d: int, p: int, q: int) -> None:
    if not (0 <= p <= d and 0 <= q <= d):
        raise ArgumentError(f"dimensions p and q need to be in [0, d={d}], found p={p}, q={q}")
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
        Under the null, with p + q <= d: d - p - q exact zeros in `null_null`, and `row_null`, `null_row` small, since
        the row spaces are close to orthogonal.

    References
    ----------
    Halmos (1969), Two subspaces; Knyazev and Argentati (2006), Majorization for changes in angles, Theorem 2.7.
    """
    _require_angles(theta, d, p, q)
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
        [...], int64, in [max(0, d - p - q), d - max(p, q)]; max(0, d - p - q) under the null.
    """
    _require_angles(theta, d, p, q)
    # p + q > d forces common directions; rounding may leave their angles above the tolerance, counting may not.
    shared = (theta <= tolerance).sum(-1).clamp(min=max(0, p + q - d))
    return d - p - q + shared
