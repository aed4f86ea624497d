r"""Two sets of singular directions: squared overlaps with their null, capture, corners, angles and mean rows.

1. Every squared overlap (u_i . v_j)^2 is 1/d on average for random directions. The mass of a block of p by q entries is
   the projection kernel of the subspaces that its directions span, so each block's standard deviation is known exactly:
   sqrt(2 p q (d - p)(d - q) / (d^2 (d - 1)(d + 2))) for the mass, that over p q for the average. Directions of equal
   singular value can be turned among themselves, which moves single entries and hardly a block: blocks are what is
   stored unless the whole is asked for.
2. Pi_k is the projector on the top k right singular directions of P. The capture of direction v_j of E is
   v_j^T Pi_k v_j, in [0, 1]; for a random k-dimensional space its law is Beta(k/2, (d - k)/2), with mean k/d.
   The sum over a set of m directions is the projection kernel of two subspaces, mean mk/d, whose law is much tighter.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.lenses.positions.schema import CENTERING, CENTERINGS, DIRECTION, SIDES
from headspan.lenses.positions.spectra import Spectrum, TableSpectra, Variables
from headspan.statistics import z_score
from headspan.subspaces import (
    Subspace,
    angle_null,
    kernel_null_mean,
    kernel_null_variance,
    log_lower_tail,
    log_upper_tail,
    principal_angles,
)

Array = Float[np.ndarray, "..."]
CORNER_SHARE = 0.1
"""A corner is the first or last tenth of both sets of directions."""
DECILES = 10
ROUNDING = 1e-20
"""A mean row with less than this share of its table's energy is what rounding left."""
SMALL = 1e-12
"""Shares and overlaps can be small; below this a standard deviation is compared with it, not with the mean."""


def kernel_null(p: Int[np.ndarray, ...], q: Int[np.ndarray, ...], d: int) -> tuple[Array, Array]:
    """Mean pq/d and sd of the sum of squared overlaps of p random directions with q others; NaN where one is 0."""
    first, second = (torch.as_tensor(np.array(side)) for side in np.broadcast_arrays(p, q))
    return kernel_null_mean(first, second, d).numpy(), kernel_null_variance(first, second, d).sqrt().numpy()


def kernel_log_p(value: Array, p: Int[np.ndarray, ...], q: Int[np.ndarray, ...], d: int) -> Array:
    """Two-sided log p-value under a uniformly random subspace; exact where p or q is 1."""
    observed = torch.as_tensor(np.asarray(value, dtype=np.float64))
    first, second = (torch.as_tensor(np.array(side)) for side in np.broadcast_arrays(p, q, value)[:2])
    return two_sided(*(tail(observed, first, second, d).numpy() for tail in (log_upper_tail, log_lower_tail)))


def two_sided(upper: Array, lower: Array) -> Array:
    """The two-sided log p-value of two logarithms of tails."""
    return np.asarray(np.minimum(0.0, math.log(2) + np.minimum(upper, lower)))


def kernel_parts(mass: Array, p: Int[np.ndarray, ...], q: Int[np.ndarray, ...], d: int) -> dict[str, Array]:
    """A mass of p by q squared overlaps with its null, z and log p, by the endings of their names."""
    mean, sd = kernel_null(p, q, d)
    return {"": mass, "_null": mean, "_z": z_score(mass, mean, sd, SMALL), "_log_p": kernel_log_p(mass, p, q, d)}


def squared_overlap(U: Float[Tensor, "*batch d r"], V: Float[Tensor, "d s"]) -> Float[Tensor, "*batch r s"]:
    """(u_i . v_j)^2 for orthonormal columns, in [0, 1]; 1/d under the null."""
    return (U.mT @ V).square()


def part_edges(count: int, parts: int) -> Int[np.ndarray, " edges"]:
    """Where `count` things are cut into `parts` that differ by one at most."""
    return np.round(np.arange(parts + 1) * count / parts).astype(np.int64)


def averaging(count: int, blocks: int, like: Tensor) -> Float[Tensor, "block count"]:
    """The matrix whose product with `count` values is their average in each block; NaN where a block is empty."""
    edges = torch.as_tensor(part_edges(count, blocks), device=like.device)
    place = torch.arange(count, device=like.device)
    inside = (place >= edges[:-1, None]) & (place < edges[1:, None])
    return inside.to(like.dtype) / inside.sum(1, keepdim=True).to(like.dtype)


def block_averages(
    overlap: Float[Tensor, "*batch r s"], blocks: tuple[int, int]
) -> Float[Tensor, "*batch block table_block"]:
    """Average squared overlap in each block."""
    rows, columns = (averaging(overlap.shape[axis], blocks[axis + 2], overlap) for axis in (-2, -1))
    return rows @ overlap @ columns.mT


def block_scores(overlap: Float[Tensor, "r s"], blocks: tuple[int, int], d: int) -> tuple[Array, Array]:
    """Average squared overlap in each block, and its z-score."""
    average = block_averages(overlap, blocks).cpu().numpy()
    p, q = (np.diff(part_edges(count, n)) for count, n in zip(overlap.shape, blocks, strict=True))
    _, sd = kernel_null(p[:, None], q[None, :], d)
    size = p[:, None] * q[None, :]
    sd = sd / np.where(size > 0, size, 1)
    return average, z_score(average, np.full_like(sd, 1 / d), sd, SMALL)


def corners(overlap: Float[Tensor, "r s"], d: int) -> dict[str, Float[np.ndarray, "two two"]]:
    """Mass of the top and bottom tenth of the rows with the top and bottom tenth of the columns [side, side]."""
    p, q = (min(count, max(1, round(CORNER_SHARE * count))) for count in overlap.shape)
    rows, columns = ((slice(0, m), slice(count - m, count)) for m, count in zip((p, q), overlap.shape, strict=True))
    mass = np.array([[float(overlap[i, j].sum()) if p and q else np.nan for j in columns] for i in rows])
    shape = (len(SIDES), len(SIDES))
    return kernel_parts(mass, np.full(shape, p), np.full(shape, q), d)


def padded(overlap: Float[np.ndarray, "r s"], d: int) -> Float[np.ndarray, "d d"]:
    """Overlaps entry by entry in single precision, NaN beyond the ranks."""
    whole = np.full((d, d), np.nan, dtype=np.float32)
    whole[: overlap.shape[0], : overlap.shape[1]] = overlap
    return whole


def capture(E: Spectrum, P: Spectrum, k: int) -> dict[str, np.ndarray]:
    """The capture of every direction of E by the top k of P, and by deciles; all NaN where either has no direction."""
    d, rank = E.d, E.rank
    curve, log_p = np.full((2, d), np.nan)
    edges = part_edges(rank, DECILES)
    size, mass = np.diff(edges), np.full(DECILES, np.nan)
    if k and rank:
        share = (E.directions.mT @ P.directions[:, :k]).square().sum(1).cpu().numpy()
        curve[:rank] = np.clip(share, 0, 1)
        log_p[:rank] = kernel_log_p(curve[:rank], np.full(rank, k), np.ones(rank, dtype=np.int64), d)
        mass = np.where(size > 0, np.add.reduceat(np.append(curve[:rank], 0.0), edges[:-1]), np.nan)
    deciles = kernel_parts(mass, size, np.full(DECILES, k), d)
    found = {"capture_k": np.array(k), "capture": curve, "capture_log_p": log_p, "decile_size": size}
    return found | {f"decile_mass{part}": values for part, values in deciles.items()}


def capture_variables(P: TableSpectra, E: TableSpectra, k: int) -> Variables:
    """Capture curves [centering, k_choice, direction] and their deciles, for k as asked and for 90 % of P's energy."""
    found = [[capture(E[c], P[c], number) for number in (min(k, P[c].rank), P[c].energy_rank(0.9))] for c in CENTERINGS]
    out: Variables = {}
    for name in found[0][0]:
        last = {"capture_k": (), "capture": (DIRECTION,), "capture_log_p": (DIRECTION,)}.get(name, ("decile",))
        out[name] = ((CENTERING, "k_choice", *last), np.array([[each[name] for each in row] for row in found]))
    size = out["capture_k"][1]
    out["capture_null"] = ((CENTERING, "k_choice"), np.where(size > 0, size / P.stored.d, np.nan))
    return out


def overlap_variables(P: TableSpectra, E: TableSpectra, blocks: int, full: int | None) -> Variables:
    """Squared overlaps of the directions of E (rows) with those of P (columns): block averages and corners.

    Also all of them, on a grid of `full` directions, if that is given.
    """
    d, found = P.stored.d, dict[str, list[np.ndarray]]()
    for centering in CENTERINGS:
        overlap = squared_overlap(E[centering].directions, P[centering].directions)
        average, z = block_scores(overlap, (blocks, blocks), d)
        cell = {"table_overlap": average, "table_overlap_z": z}
        cell |= {f"table_corner{part}": values for part, values in corners(overlap, d).items()}
        if full is not None:
            cell["table_overlap_full"] = padded(overlap.cpu().numpy(), full)
        for name, values in cell.items():
            found.setdefault(name, []).append(values)
    axes = {"table_overlap": "block", "table_overlap_z": "block", "table_overlap_full": "direction"}
    out: Variables = {}
    for name, listed in found.items():
        axis = axes.get(name, "side")
        out[name] = ((CENTERING, f"token_{axis}", f"table_{axis}"), np.stack(listed))
    return out


def angle_variables(P: TableSpectra, E: TableSpectra, k: int, seed: int) -> Variables:
    """Principal angles of the top k directions of both tables, with their null; NaN beyond the smaller rank."""
    angles, null, sd = np.full((3, len(CENTERINGS), k), np.nan)
    ranks = np.array([[min(k, spectra[c].rank) for c in CENTERINGS] for spectra in (P, E)])
    for place, centering in enumerate(CENTERINGS):
        p, q = map(int, ranks[:, place])
        if min(p, q) == 0:
            continue
        spaces = (Subspace.from_orthonormal(T[centering].directions[:, :n]) for T, n in ((P, p), (E, q)))
        found = principal_angles(*spaces).cpu().numpy()
        random = angle_null(P.stored.d, p, q, seed=seed)
        angles[place, : len(found)] = found
        null[place, : len(found)] = random.angle_mean.numpy()
        sd[place, : len(found)] = random.angle_sd.numpy()
    dims, d = (CENTERING, "angle"), P.stored.d
    kernel = np.where(np.isnan(angles).all(1), np.nan, np.nansum(np.cos(angles) ** 2, axis=1))
    expected = np.where(ranks.min(0) > 0, ranks[0] * ranks[1] / d, np.nan)
    return {
        "angles": (dims, angles),
        "angles_null": (dims, null),
        "angles_z": (dims, z_score(angles, null, sd, SMALL)),
        "top_kernel": ((CENTERING,), kernel),
        "top_kernel_null": ((CENTERING,), expected),
        "top_kernel_log_p": ((CENTERING,), kernel_log_p(kernel, ranks[0], ranks[1], d)),
    }


def mean_variables(P: TableSpectra, E: TableSpectra, k: int) -> Variables:
    """The mean rows: their cosine, and the share of E's mean row in the top k directions of P as stored.

    Under the null the squared cosine is 1/d and the share k/d on average; both have exact Beta laws. NaN where a mean
    row is rounding.
    """
    d, number = P.stored.d, min(k, P.stored.rank)
    first, second = (spectra.mean_row / spectra.mean_row.norm() for spectra in (P, E))
    if min(P.mean_share, E.mean_share) < ROUNDING:
        first, second = first * torch.nan, second * torch.nan
    cosine = float(first @ second)
    share = float((second @ P.stored.directions[:, :number]).square().sum())
    log_p = kernel_log_p(np.array([cosine**2, share]), np.array([1, number]), np.array([1, 1]), d)
    found = {
        "mean_cosine": cosine,
        "mean_cosine_null_sd": d**-0.5,
        "mean_cosine_log_p": log_p[0],
        "mean_capture": share,
        "mean_capture_null": number / d,
        "mean_capture_log_p": log_p[1],
    }
    return {name: ((), np.array(value)) for name, value in found.items()}
