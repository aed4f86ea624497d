"""Distances between the attention spaces of every pair of heads.

1. Bases are laid out as rows, [n q, d], so that the products U_i^T V_j of one head with many are one matrix product.
2. Squared cosines are the eigenvalues of P P^T for each of those small products P, at 0.6 of the time its singular
   values take. A cosine then has an error of eps / cosine; the few pairs with one below eps^(1/3) do take those.
3. Angles come from cosines alone. That loses digits of a small angle only, and a distance as a whole only where *all*
   its angles are small (two nearly equal spaces); those few pairs are done again by `principal_angles`, from sines.

Only one half of a symmetric table is computed.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import MemoryBudgetError
from headspan.lenses.similarity.chance import METRICS
from headspan.subspaces import Subspace, principal_angles
from headspan.subspaces.precision import clip_rounding, epsilon
from headspan.threads import one_thread


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


def _row_distances(S: Subspace, i: int, T: Subspace, rows: Tensor, first: int, metric: str, step: int) -> Tensor:
    """Distances of member i of S to the members first, first + 1, ... of T."""
    parts = [
        METRICS[metric](_angles_to_many(S.basis[i], S.rank[i], rows[j : j + step], T.rank[j : j + step]))
        for j in range(first, len(rows), step)
    ]
    return torch.cat(parts) if parts else S.basis.new_zeros(0)


def distance_table(S: Subspace, metric: str, memory: int) -> Float[np.ndarray, "n n"]:
    """Distances of all pairs of one batch.

    Parameters
    ----------
    S
        A one-axis batch of n spaces.
    metric
        A name of `METRICS`.
    memory
        Scratch space in bytes; bases and result not counted.

    Returns
    -------
    Array
        [n, n], symmetric, zero on the diagonal, NaN where a rank is 0. By chance see `similarity_chance.chance_tables`.
    """
    n, rows = len(S.rank), S.basis.mT.contiguous()
    step = _columns_that_fit(S, S, memory)
    table = torch.zeros(n, n, dtype=S.basis.dtype, device=S.basis.device)
    for i in range(n - 1):
        table[i, i + 1 :] = _row_distances(S, i, S, rows, i + 1, metric, step)
    table = table + table.mT
    empty = S.rank == 0
    return torch.where(empty[:, None] | empty, torch.nan, table).cpu().numpy()


def cross_distances(S: Subspace, T: Subspace, metric: str, memory: int) -> Float[np.ndarray, "n m"]:
    """Distances of every member of one batch to every member of another; as `distance_table`."""
    rows, step = T.basis.mT.contiguous(), _columns_that_fit(S, T, memory)
    return torch.stack([_row_distances(S, i, T, rows, 0, metric, step) for i in range(len(S.rank))]).cpu().numpy()
