"""How far each head's space moved, and how far a random change of the same size would have moved it.

The space is the whole column span, or the span of the leading left singular vectors. The null adds a random change to
the head as it was: a Gaussian matrix of the same Frobenius norm as the change, or, for rounding, the change itself with
a random sign for every entry. A head with small singular values turns far under a small change, so equal distances do
not mean the same; this null knows the head's spectrum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import stats  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.subspaces import (
    Subspace,
    chordal_distance,
    grassmann_distance,
    orthonormal_basis,
    principal_angles,
    singular_values,
    spectrum_ks,
)
from headspan.subspaces.random_angles import PerturbedSpan, expected_perturbation_sines, random_perturbation
from headspan.subspaces.random_changes import rounded_span

COMPARED = ("grassmann", "chordal", "projection_kernel", "spectrum_ks", "spectrum_change")
MOMENTS = tuple(f"{name}_{part}" for name in COMPARED for part in ("null", "null_sd"))


@dataclass(frozen=True)
class Motion:
    """The heads of one layer and role, before and after, as subspaces of R^d."""

    first: Float[Tensor, "head d p"]
    change: Float[Tensor, "head d p"]
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
    first: Float[Tensor, "head d p"],
    second: Float[Tensor, "head d p"],
    tolerance: float | None = None,
    leading: int | None = None,
    noises: tuple[Tensor | float, Tensor | float] = (0.0, 0.0),
) -> Motion:
    """What became of the column span of each matrix, or of its `leading` directions.

    `tolerance` and `noises`, of both, decide ranks as in `orthonormal_basis`.
    """
    pairs = zip((first, second), noises, strict=True)
    before, after = (_space(W, tolerance, noise, leading) for W, noise in pairs)
    change = second - first
    unchanged = (change == 0).all(-1).all(-1)
    angles = principal_angles(before, after)
    # The same matrix twice leaves rounding in its angles; they are zero.
    angles = torch.where(unchanged[:, None] & angles.isfinite(), 0.0, angles)
    residual = change - before.basis @ (before.basis.mT @ change)
    return Motion(
        first=first,
        change=change,
        before=before,
        after=after,
        values_before=singular_values(first),
        values_after=singular_values(second),
        angles=angles,
        size=torch.linalg.matrix_norm(change),
        outside=residual.square().sum((-1, -2)),
        unchanged=unchanged,
    )


def _space(
    W: Float[Tensor, "head d p"], tolerance: float | None, noise: Tensor | float, leading: int | None
) -> Subspace:
    whole = orthonormal_basis(W, tolerance, "auto" if leading is None else "svd", noise)
    if leading is None:
        return whole
    return Subspace(whole.basis[..., :leading], whole.rank.clamp(max=leading))


def motion_variables(found: Motion, d: int) -> dict[str, Tensor]:
    """The quantities of the lens that need no draws, [head] or [head, p]."""
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
        "outside_share_null": torch.where(moved & defined, (d - rank) / d, torch.nan),
        "outside_share_null_sd": torch.where(moved & defined, _beta_sd((d - rank) * p / 2, rank * p / 2), torch.nan),
        "singular_value_before": found.values_before,
        "singular_value_after": found.values_after,
        "spectrum_ks": spectrum_ks(found.values_before, found.values_after),
        "spectrum_change": torch.where(norm > 0, _spectrum_change(found.values_before, found.values_after), torch.nan),
        "rank_before": found.before.rank,
        "rank_after": found.after.rank,
        "unchanged": found.unchanged,
    }


def _spectrum_change(s: Tensor, changed: Tensor) -> Tensor:
    """|s' - s| / |s| of singular values in descending order."""
    change: Tensor = torch.linalg.vector_norm(changed - s, dim=-1) / torch.linalg.vector_norm(s, dim=-1)
    return change


def _beta_sd(a: Tensor, b: Tensor) -> Tensor:
    """Standard deviation of the share of a Gaussian matrix's energy in a fixed subspace, Beta(a, b)."""
    return (a * b / ((a + b) ** 2 * (a + b + 1))).sqrt()


def growth_variables(found: Motion, noise: str) -> dict[str, Float[Tensor, " head"]]:
    """By what share the weights grew along themselves, <W' - W, W> / |W|^2, and its moments under the null."""
    W, E = found.first.double(), found.change.double()
    energy = W.square().sum((-2, -1))
    entries = W.shape[-1] * W.shape[-2]
    spread = (W * E).square().sum((-2, -1)) if noise == "rounding" else energy * found.size.double() ** 2 / entries
    there = energy > 0
    return {
        "growth": torch.where(there, (W * E).sum((-2, -1)) / energy, torch.nan),
        "growth_null": torch.where(there, 0.0, torch.nan),
        "growth_null_sd": torch.where(there, spread.sqrt() / energy, torch.nan),
    }


def null_variables(
    found: Motion, d: int, draws: int, seed: tuple[int, ...], whole: bool, noise: str
) -> dict[str, Float[Tensor, " head"]]:
    """Mean and standard deviation over draws of what is compared, and `chordal_expected`, which needs none.

    Zero for a head that did not change; NaN for one without a space. `chordal_expected` is known for whole spans only:
    leading directions also mix with those behind them, by how much depends on gaps of the spectrum. Under rounding
    noise the share outside has a null from draws too; under Gaussian noise its law is known.
    """
    generator = torch.Generator().manual_seed(_mixed(seed))
    ranks = list(zip(found.before.rank.tolist(), found.after.rank.tolist(), strict=True))
    rounding = noise == "rounding"
    names = (*MOMENTS, *(("outside_share_null", "outside_share_null_sd") if rounding else ()))
    columns: dict[str, list[float]] = {name: [] for name in (*names, "chordal_expected")}
    for place, rank in enumerate(ranks):
        s, size = found.values_before[place], found.size[place]
        if min(rank) == 0 or size == 0:
            moments = dict.fromkeys(names, float("nan")) | ({} if min(rank) == 0 else _still(min(rank)))
        elif rounding:
            moments = _rounding_moments(found, place, draws, generator, rank)
        else:
            moments = _moments(s.cpu(), random_perturbation(s.cpu(), d, float(size), draws, generator, rank))
        for name in names:
            columns[name].append(moments[name])
        sines = expected_perturbation_sines(s, d, size, rank)
        columns["chordal_expected"].append(float(sines.square().sum().sqrt()) if whole and min(rank) else float("nan"))
    return {name: torch.tensor(column, dtype=torch.float64) for name, column in columns.items()}


def _still(rank: int) -> dict[str, float]:
    """Moments of a head that did not change."""
    still = dict.fromkeys(COMPARED, 0.0) | {"projection_kernel": float(rank)}
    means = {f"{name}_null": value for name, value in still.items()}
    return means | {f"{name}_null_sd": 0.0 for name in still}


def _rounding_moments(
    found: Motion, place: int, draws: int, generator: torch.Generator, rank: tuple[int, int]
) -> dict[str, float]:
    W, change, basis = (part[place].double() for part in (found.first, found.change, found.before.basis))
    drawn, outside = rounded_span(W, change, basis, draws, generator, rank)
    moments = _moments(found.values_before[place], drawn)
    return moments | {"outside_share_null": float(outside.mean()), "outside_share_null_sd": float(outside.std())}


def _moments(s: Tensor, drawn: PerturbedSpan) -> dict[str, float]:
    """Mean and standard deviation of each compared quantity for one head."""
    values = {
        "grassmann": grassmann_distance(drawn.angles),
        "chordal": chordal_distance(drawn.angles),
        "projection_kernel": (torch.cos(drawn.angles) ** 2).sum(-1),
        "spectrum_ks": spectrum_ks(s, drawn.singular_values),
        "spectrum_change": _spectrum_change(s, drawn.singular_values),
    }
    means = {f"{name}_null": float(value.mean()) for name, value in values.items()}
    return means | {f"{name}_null_sd": float(value.std()) for name, value in values.items()}


def _mixed(seed: tuple[int, ...]) -> int:
    """One seed out of several numbers, so that every layer and role has draws of its own."""
    return int(np.random.SeedSequence(list(seed)).generate_state(1, np.uint64)[0] >> 1)


def share_p(share: np.ndarray, rank: np.ndarray, d: int, p: int) -> np.ndarray:
    """Two-sided p-value of the share of a change that points out of the span, under the law Beta(p(d-r)/2, pr/2)."""
    a, b = p * (d - rank) / 2, p * rank / 2
    proper = np.isfinite(share) & (a > 0) & (b > 0)
    law = stats.beta(np.where(proper, a, 1.0), np.where(proper, b, 1.0))
    tails = 2 * np.minimum(law.cdf(share), law.sf(share))
    return np.where(proper, np.minimum(tails, 1.0), np.nan)
