"""Squared overlaps (u_i . v_j)^2 of two sets of singular directions: block averages and corner masses, with chance.

Every entry is 1/d by chance. The mass of a block of p by q entries is the projection kernel of the subspaces that its
directions span, so each block's standard deviation is known exactly: sqrt(2 p q (d - p)(d - q) / (d^2 (d - 1)(d + 2)))
for the mass, that over p q for the average. Directions of equal singular value can be turned among themselves, which
moves single entries and hardly a block: blocks are what is stored unless the whole is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lenses.positions.capture import part_edges
from headspan.lenses.positions.chance import kernel_chance, kernel_log_p, z_score

SIDES = ("top", "bottom")
CORNER_SHARE = 0.1
"""A corner is the first or last tenth of both sets of directions."""


def squared_overlap(U: Float[Tensor, "*batch d r"], V: Float[Tensor, "d s"]) -> Float[Tensor, "*batch r s"]:
    """(u_i . v_j)^2 for orthonormal columns, in [0, 1]; 1/d by chance."""
    return (U.mT @ V).square()


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


def block_sd(counts: tuple[int, int], blocks: tuple[int, int], d: int) -> Float[np.ndarray, "block table_block"]:
    """Standard deviation of each block's average by chance."""
    p, q = (np.diff(part_edges(count, n)) for count, n in zip(counts, blocks, strict=True))
    _, sd = kernel_chance(p[:, None], q[None, :], d)
    size = p[:, None] * q[None, :]
    return sd / np.where(size > 0, size, 1)


@dataclass(frozen=True)
class Corners:
    """Masses of the four corners [side, side] with their chance."""

    mass: Float[np.ndarray, "two two"]
    chance: Float[np.ndarray, "two two"]
    z: Float[np.ndarray, "two two"]
    log_p: Float[np.ndarray, "two two"]


def corners(overlap: Float[Tensor, "r s"], d: int) -> Corners:
    """Mass of the top and bottom tenth of the rows with the top and bottom tenth of the columns."""
    p, q = (corner_size(count) for count in overlap.shape)
    rows, columns = ((slice(0, m), slice(count - m, count)) for m, count in zip((p, q), overlap.shape, strict=True))
    mass = np.array([[float(overlap[i, j].sum()) if p and q else np.nan for j in columns] for i in rows])
    first, second = np.full((2, 2), p), np.full((2, 2), q)
    mean, sd = kernel_chance(first, second, d)
    return Corners(mass, mean, z_score(mass, mean, sd), kernel_log_p(mass, first, second, d))


def corner_size(count: int) -> int:
    """Directions in a corner: a tenth, at least one."""
    return min(count, max(1, round(CORNER_SHARE * count)))
