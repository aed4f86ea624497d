"""Distances between the subspaces of every pair of a batch, and their moments under the null.

1. Bases are laid out as rows, [n q, d], so that the products U_i^T V_j of one space with many are one matrix product.
2. Squared cosines are the eigenvalues of P P^T for each of those small products P, at 0.6 of the time its singular
   values take. A cosine then has an error of eps / cosine; the few pairs with one below eps^(1/3) do take those.
3. Angles come from cosines alone. That loses digits of a small angle only, and a distance as a whole only where *all*
   its angles are small (two nearly equal spaces); those few pairs are done again by `principal_angles`, from sines.
   Only one half of a symmetric table is computed.
4. The chordal distance and its multiple, the projection distance, need no angles: their squares follow from projection
   kernels, a hundredth of the arithmetic for many heads. Pairs whose difference loses digits are done from angles.
5. Null: the spaces are independent and uniform (Haar) among those of their dimensions. Where two spaces have an
   r-dimensional part in common by construction, only the rest is random: spaces of dimensions p and q in R^d have r
   angles of 0 and, beyond them, the angles of random spaces of dimensions p - r and q - r in the R^(d-r) orthogonal to
   the common part. Moments come from draws of the principal angles, one sample per triple (p, q, r) that occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import MemoryBudgetError
from headspan.subspaces.angles import principal_angles
from headspan.subspaces.distances import (
    binet_cauchy_distance,
    chordal_distance,
    fubini_study_distance,
    grassmann_distance,
    procrustes_distance,
    projection_distance,
    spectral_distance,
)
from headspan.subspaces.overlap import squared_overlap_table, squared_overlaps
from headspan.subspaces.random_angles import random_principal_angles
from headspan.subspaces.rank import clip_rounding, epsilon
from headspan.subspaces.subspace import Subspace
from headspan.threads import one_thread

DISTANCES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "grassmann": grassmann_distance,
    "chordal": chordal_distance,
    "projection": projection_distance,
    "fubini-study": fubini_study_distance,
    "binet-cauchy": binet_cauchy_distance,
    "spectral": spectral_distance,
    "procrustes": procrustes_distance,
}
KERNEL_FACTORS: Mapping[str, float] = {"chordal": 1.0, "projection": 2.0}
"""Distances whose square is a multiple of (dimension - projection kernel)."""
DRAWS = 256
FEWEST_DRAWS = 32
UNKNOWN = -1
"""As a shared dimension: the pair shares something and no null distribution is known for it."""


def _angles_to_many(
    U: Float[Tensor, "d p"], rank: Int[Tensor, ""], rows: Float[Tensor, "m q d"], ranks: Int[Tensor, " m"]
) -> Float[Tensor, "m k"]:
    """Principal angles of one space with m others; NaN beyond the smaller rank."""
    m, q, d = rows.shape
    # Written with U^T first, the product runs at nine tenths of peak; the other way round at two thirds.
    products = (U.mT @ rows.reshape(m * q, d).mT).view(-1, m, q).transpose(0, 1).contiguous()
    count = torch.minimum(rank, ranks)
    cosines, smallest = _cosines(products, count, 8 * d * epsilon(U))
    angles = torch.acos(cosines)
    # acos loses about eps / theta: nothing that shows in a distance, unless its largest angle is this small.
    near = ((smallest**2 > 1 - epsilon(U) ** 0.25) & (count > 0)).nonzero().squeeze(-1)
    for j in near.tolist():
        angles[j] = principal_angles(Subspace(U, rank), Subspace(rows[j].mT, ranks[j]))
    return angles


@one_thread()
def _cosines(
    products: Float[Tensor, "m p q"], count: Int[Tensor, " m"], tolerance: float
) -> tuple[Float[Tensor, "m k"], Float[Tensor, " m"]]:
    """The `count` largest singular values of each product, descending, NaN beyond; and the smallest of them."""
    wide = products if products.shape[1] <= products.shape[2] else products.mT
    squares = clip_rounding(torch.linalg.eigvalsh(wide @ wide.mT), 0.0, 1.0, 2 * tolerance, "squared cosine")
    cosines = squares.sqrt().flip(-1)
    exists = torch.arange(cosines.shape[-1], device=count.device) < count[:, None]
    smallest = torch.where(exists, cosines, 1.0).amin(-1)
    faint = smallest < epsilon(products) ** (1 / 3)
    if bool(faint.any()):
        values = torch.linalg.svdvals(products[faint])
        cosines[faint] = clip_rounding(values, 0.0, 1.0, tolerance, "cosine of a principal angle")
    return torch.where(exists, cosines, torch.nan), smallest


def _columns_that_fit(S: Subspace, T: Subspace, memory: int) -> int:
    """How many products with one head fit: the product, its copies, and the angles."""
    unit = S.basis.element_size() * (4 * S.width * T.width + 4 * min(S.width, T.width))
    if unit > memory:
        raise MemoryBudgetError(f"one pair of heads needs {unit:,} bytes and the budget is {memory:,}; raise `memory`")
    return memory // unit


def _row_distances(S: Subspace, i: int, T: Subspace, rows: Tensor, first: int, distance: str, step: int) -> Tensor:
    """Distances of member i of S to the members first, first + 1, ... of T."""
    parts = [
        DISTANCES[distance](_angles_to_many(S.basis[i], S.rank[i], rows[j : j + step], T.rank[j : j + step]))
        for j in range(first, len(rows), step)
    ]
    return torch.cat(parts) if parts else S.basis.new_zeros(0)


def _from_kernels(S: Subspace, T: Subspace, kernels: Float[Tensor, "n m"], distance: str) -> Float[Tensor, "n m"]:
    """Chordal or projection distances of all pairs; NaN where a rank is 0."""
    least = torch.minimum(S.rank[:, None], T.rank)
    square = KERNEL_FACTORS[distance] * (least - kernels).clamp(min=0)
    found = torch.where(least > 0, square.sqrt(), torch.nan)
    # The difference has an error of eps times the dimension: what is not far above it is had from sines.
    near = (least > 0) & (square < least * epsilon(kernels) ** 0.25)
    for i, j in (near.triu(1) if S is T else near).nonzero().tolist():
        found[i, j] = DISTANCES[distance](principal_angles(S[i], T[j]))
        if S is T:
            found[j, i] = found[i, j]
    return found


def distance_table(S: Subspace, distance: str, memory: int) -> Float[np.ndarray, "n n"]:
    """Distances of all pairs of one batch.

    Parameters
    ----------
    S
        A one-axis batch of n spaces.
    distance
        A name of `DISTANCES`.
    memory
        Scratch space in bytes; bases and result not counted.

    Returns
    -------
    Array
        [n, n], symmetric, zero on the diagonal, NaN where a rank is 0. Under the null see `null_moments`.
    """
    n, rows = len(S.rank), S.basis.mT.contiguous()
    if distance in KERNEL_FACTORS:
        kernels = squared_overlap_table(rows.mT, memory=memory)
        table = _from_kernels(S, S, kernels, distance).fill_diagonal_(0)
    else:
        step = _columns_that_fit(S, S, memory)
        table = torch.zeros(n, n, dtype=S.basis.dtype, device=S.basis.device)
        for i in range(n - 1):
            table[i, i + 1 :] = _row_distances(S, i, S, rows, i + 1, distance, step)
        table = table + table.mT
    empty = S.rank == 0
    return torch.where(empty[:, None] | empty, torch.nan, table).cpu().numpy()


def cross_distances(S: Subspace, T: Subspace, distance: str, memory: int) -> Float[np.ndarray, "n m"]:
    """Distances of every member of one batch to every member of another; as `distance_table`."""
    if distance in KERNEL_FACTORS:
        (kernels,) = squared_overlaps(S.basis, [T.basis], memory=memory)
        return _from_kernels(S, T, kernels, distance).cpu().numpy()
    rows, step = T.basis.mT.contiguous(), _columns_that_fit(S, T, memory)
    return torch.stack([_row_distances(S, i, T, rows, 0, distance, step) for i in range(len(S.rank))]).cpu().numpy()


@lru_cache(maxsize=4096)
def distance_moments(distance: str, d: int, p: int, q: int, shared: int, draws: int, seed: int) -> tuple[float, float]:
    """Mean and standard deviation of a distance under the null; NaN for a dimension 0 or an unknown shared part."""
    if min(p, q) == 0 or shared == UNKNOWN:
        return float("nan"), float("nan")
    free = min(p, q) - shared
    angles = torch.zeros(draws, 0, dtype=torch.float64)
    if free > 0:
        angles = random_principal_angles(d - shared, p - shared, q - shared, draws, seed)
    distances = DISTANCES[distance](torch.nn.functional.pad(angles, (shared, 0)))
    return float(distances.mean()), float(distances.std())


def null_moments(
    distance: str,
    d: int,
    src: Int[np.ndarray, " n"],
    dst: Int[np.ndarray, " m"],
    shared: Int[np.ndarray, "n m"],
    seed: int,
) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "n m"]]:
    """Mean and standard deviation under the null of every pair's distance.

    Parameters
    ----------
    distance, d
        The distance and the dimension of the residual stream.
    src, dst
        True dimensions of the spaces on both sides.
    shared
        Dimension that each pair has in common by construction: 0 for separate heads, UNKNOWN where no law is known.
    seed
        Fixes the draws. With many distinct dimensions there are fewer draws for each (at least 32 of 256).

    Returns
    -------
    mean, sd
        NaN where a dimension is 0. For Grassmann distances of 128 dimensions in R^768: 13.82 and 0.023.
    """
    small, large = np.minimum(src[:, None], dst), np.maximum(src[:, None], dst)
    triples = np.stack([small, large, shared], axis=-1).reshape(-1, 3)
    kinds, which = np.unique(triples, axis=0, return_inverse=True)
    draws = max(FEWEST_DRAWS, min(DRAWS, 16 * DRAWS // max(1, len(kinds))))
    found = [distance_moments(distance, d, int(p), int(q), int(r), draws, seed) for p, q, r in kinds]
    moments = np.array(found).reshape(-1, 2)[which.reshape(-1)].reshape(*shared.shape, 2)
    return moments[..., 0], moments[..., 1]
