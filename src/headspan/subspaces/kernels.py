"""The projection kernel: how much of one subspace another one sees.

PK(U, V) = ||U^T V||_F^2 = sum of cos^2 of the principal angles = <U U^T, V V^T>. It depends on the two subspaces only,
not on their bases. The work is done in `overlap`; here ranks are honoured: a subspace of rank 0 has no kernel (NaN, and
not 0, which would say "orthogonal"), and the normalization divides by the true dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.subspaces.overlap import Algorithm, squared_overlap_table, squared_overlaps
from headspan.subspaces.rank import DEFAULT_MEMORY, clip_rounding, epsilon
from headspan.subspaces.staircase import require_layers
from headspan.subspaces.subspace import Subspace


def checked_kernel(table: Tensor, src: Tensor, dst: Tensor, normalized: bool) -> Tensor:
    """NaN at rank 0, rounding above min(p, q) clipped, divided by sqrt(pq) if asked."""
    p, q = src[:, None].to(table.dtype), dst[None, :].to(table.dtype)
    p, q = torch.where(p > 0, p, torch.nan), torch.where(q > 0, q, torch.nan)
    table = torch.where((p * q).isnan(), torch.nan, table)
    limit = torch.minimum(p, q)
    table = clip_rounding(table, 0.0, limit, 256 * epsilon(table) * limit, "projection kernel")
    return table / (p * q).sqrt() if normalized else table


def projection_kernel(
    S: Subspace,
    T: Subspace,
    *,
    normalized: bool = False,
    src_layer: Int[Tensor, " _n"] | None = None,
    dst_layer: Int[Tensor, " _m"] | None = None,
    algorithm: Algorithm = "auto",
    memory: int = DEFAULT_MEMORY,
) -> Float[Tensor, "n m"]:
    """PK(U_i, V_j) = ||U_i^T V_j||_F^2 for every source i and destination j.

    Parameters
    ----------
    S, T
        One-axis batches of n sources and m destinations in one R^d.
    normalized
        Divide by sqrt(pq), with the true dimensions p and q of each pair.
    src_layer, dst_layer
        If given, pairs without src_layer < dst_layer are not computed and are NaN.
    algorithm, memory
        As for `overlap.squared_overlaps`.

    Returns
    -------
    Tensor
        [n, m], in [max(0, p + q - d), min(p, q)], pq/d under the null (sd: `kernel_null`); normalized in [0, 1],
        sqrt(pq)/d under the null. NaN where a rank is 0.

    References
    ----------
    Measuring Affinity between Attention-Head Weight Subspaces via the Projection Kernel, arXiv 2601.10266;
    Hamm and Lee (2008), Grassmann discriminant analysis.
    """
    dst_layers = None if dst_layer is None else [dst_layer]
    return projection_kernels(
        S,
        [T],
        normalized=normalized,
        src_layer=src_layer,
        dst_layers=dst_layers,
        algorithm=algorithm,
        memory=memory,
    )[0]


def projection_kernels(
    S: Subspace,
    Ts: Sequence[Subspace],
    *,
    normalized: bool = False,
    src_layer: Int[Tensor, " _n"] | None = None,
    dst_layers: Sequence[Int[Tensor, " _m"]] | None = None,
    algorithm: Algorithm = "auto",
    memory: int = DEFAULT_MEMORY,
) -> tuple[Float[Tensor, "n _"], ...]:
    """`projection_kernel` of one batch of sources with each of several batches, the sources' work done once.

    Parameters
    ----------
    S, Ts
        One-axis batches in one R^d; a role of a model each, say.
    src_layer, dst_layers
        Layer of each source, and of each member of every batch of `Ts`.
    normalized, algorithm, memory
        As for `projection_kernel`.

    Returns
    -------
    tuple of Tensor
        [n, m] for each batch of `Ts`, as `projection_kernel`.
    """
    bases = [T.basis for T in Ts]
    tables = squared_overlaps(
        S.basis, bases, src_layer=src_layer, dst_layers=dst_layers, algorithm=algorithm, memory=memory
    )
    return tuple(checked_kernel(table, S.rank, T.rank, normalized) for table, T in zip(tables, Ts, strict=True))


def projection_kernel_table(
    S: Subspace,
    *,
    normalized: bool = False,
    layer: Int[Tensor, " _n"] | None = None,
    algorithm: Algorithm = "auto",
    memory: int = DEFAULT_MEMORY,
) -> Float[Tensor, "n n"]:
    """The projection kernel of all pairs of one batch, symmetric, at half the work.

    Parameters
    ----------
    S
        A one-axis batch. With `concatenate` roles this one table holds every pairing of roles.
    normalized, algorithm, memory
        As for `projection_kernel`.
    layer
        Layer of each member. If given, pairs without layer[row] < layer[column] are NaN; the half of the table that
        symmetry leaves to compute holds each composing pair once, so nothing more can be skipped.

    Returns
    -------
    Tensor
        [n, n], exactly symmetric without `layer`; diagonal p (normalized 1), elsewhere as `projection_kernel`.
    """
    require_layers(layer, S.rank.numel(), "src")
    table = checked_kernel(
        squared_overlap_table(S.basis, algorithm=algorithm, memory=memory), S.rank, S.rank, normalized
    )
    if layer is None:
        return table
    layer = layer.to(table.device)
    return torch.where(layer[:, None] < layer, table, torch.nan)
