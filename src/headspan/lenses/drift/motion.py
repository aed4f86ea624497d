"""How far each head's space moved: angles, distances, kernel, and how much of the change points out of the space.

The space is the whole column span, or the span of the leading left singular vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headspan.subspaces import (
    Subspace,
    chordal_distance,
    grassmann_distance,
    orthonormal_basis,
    principal_angles,
    singular_values,
    spectrum_rank,
)
from headspan.threads import one_thread


@dataclass(frozen=True)
class Motion:
    """The heads of one layer and role, before and after, as subspaces of R^d."""

    before: Subspace
    after: Subspace
    values_before: Float[Tensor, "head p"]
    values_after: Float[Tensor, "head p"]
    angles: Float[Tensor, "head k"]
    size: Float[Tensor, " head"]
    """|W' - W|_F."""
    outside: Float[Tensor, " head"]
    """|(I - P)(W' - W)|_F^2, with P the projector on the old space."""
    unchanged: Bool[Tensor, " head"]


def motion(
    first: Float[Tensor, "head d p"], second: Float[Tensor, "head d p"], tolerance: float, leading: int | None = None
) -> Motion:
    """What became of the column span of each matrix, or of its `leading` directions."""
    before, after = (_space(W, tolerance, leading) for W in (first, second))
    change = second - first
    unchanged = (change == 0).all(-1).all(-1)
    angles = principal_angles(before, after)
    # The same matrix twice leaves rounding in its angles; they are zero.
    angles = torch.where(unchanged[:, None] & angles.isfinite(), 0.0, angles)
    residual = change - before.basis @ (before.basis.mT @ change)
    return Motion(
        before=before,
        after=after,
        values_before=singular_values(first),
        values_after=singular_values(second),
        angles=angles,
        size=torch.linalg.matrix_norm(change),
        outside=residual.square().sum((-1, -2)),
        unchanged=unchanged,
    )


def _space(W: Float[Tensor, "head d p"], tolerance: float, leading: int | None) -> Subspace:
    if leading is None:
        return orthonormal_basis(W, tolerance)
    with one_thread():
        U, s, _ = torch.linalg.svd(W, full_matrices=False)
    rank = spectrum_rank(s, tolerance).clamp(max=leading)
    kept = torch.arange(leading, device=W.device) < rank[..., None]
    return Subspace(U[..., :leading] * kept[..., None, :], rank)


def motion_variables(found: Motion, d: int) -> dict[str, Tensor]:
    """The quantities of the lens that need no chance, [head] or [head, p]; names as in `lens.compute`."""
    defined = found.angles.isfinite().any(-1)
    norm = torch.linalg.vector_norm(found.values_before, dim=-1)
    kernel = torch.where(defined, (torch.cos(found.angles) ** 2).nansum(-1), torch.nan)
    moved, p = found.size > 0, found.values_before.shape[-1]
    rank = found.before.rank.to(norm.dtype)
    return {
        "angles": found.angles,
        "grassmann": grassmann_distance(found.angles),
        "chordal": chordal_distance(found.angles),
        "projection_kernel": kernel,
        "relative_change": torch.where(norm > 0, found.size / norm, torch.nan),
        "outside_share": torch.where(moved & defined, found.outside / found.size**2, torch.nan),
        "outside_share_chance": torch.where(moved & defined, (d - rank) / d, torch.nan),
        "outside_share_sd": torch.where(moved & defined, _beta_sd((d - rank) * p / 2, rank * p / 2), torch.nan),
        "singular_value_before": found.values_before,
        "singular_value_after": found.values_after,
        "spectrum_ks": spectrum_ks(found.values_before, found.values_after),
        "rank_before": found.before.rank,
        "rank_after": found.after.rank,
        "unchanged": found.unchanged,
    }


def _beta_sd(a: Tensor, b: Tensor) -> Tensor:
    """Standard deviation of the share of a Gaussian matrix's energy in a fixed subspace, Beta(a, b)."""
    return (a * b / ((a + b) ** 2 * (a + b + 1))).sqrt()


def spectrum_ks(first: Float[Tensor, "*_ p"], second: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch"]:
    """The Kolmogorov-Smirnov distance of two sets of singular values, sup |F - F'|; the first is repeated as needed.

    Returns
    -------
    Tensor
        [...] in [0, 1], a multiple of 1/p: 0 for equal spectra, and 1/p or more as soon as one value differs. By chance
        see the lens: what a random change of the same size does.
    """
    first, second = (values.flip(-1).contiguous() for values in (first.expand_as(second), second))
    p = first.shape[-1]
    points = torch.cat([first, second], dim=-1)
    shares = [torch.searchsorted(values, points, right=True) / p for values in (first, second)]
    return (shares[0] - shares[1]).abs().amax(-1).to(torch.float64)
