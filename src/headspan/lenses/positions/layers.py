r"""Every matrix of every layer against the directions of both tables, in one pass over the layers.

1. A matrix that reads the stream (W_Q, W_K, W_V, the MLP's input) has its directions on the left, one that writes it
   (W_O, the MLP's output) on the right; both live in R^d. Whole-layer matrices put all heads side by side, each kv head
   once.
2. One number for a matrix and a table is the share of the matrix's energy that lies where the table has its own. With
   the left singular directions u_i of W, in R^d, weighted by w_i = s_i^2 / sum s^2, and the projector Pi_k on the top k
   directions of a table,

       alignment = sum_i w_i u_i^T Pi_k u_i = |Pi_k W|_F^2 / |W|_F^2,   k/d under the null,

   in [0, 1]. With the table's own weights b_j in place of the projector it is the energy alignment
   sum_ij w_i b_j (u_i . v_j)^2, 1/d under the null. Both are tr(A B) for two symmetric matrices; under the null one of
   them is turned by a random rotation, which leaves both spectra as they are (`subspaces.nulls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import ROLES, Role
from headspan.heads import HeadBlock, Heads
from headspan.heads.memory import memory_bytes
from headspan.lenses.positions.overlap import (
    SMALL,
    block_averages,
    block_scores,
    corners,
    padded,
    squared_overlap,
    two_sided,
)
from headspan.lenses.positions.spectra import RankRule, Spectrum, batched_directions, matrix_spectrum
from headspan.statistics import z_score
from headspan.subspaces import default_tolerance, noise_floor, spectrum_rank
from headspan.subspaces.nulls import rotated_trace_log_tail, rotated_trace_moments

BLOCKS, HEAD_BLOCKS = 32, 16
PARTS = ("", "_null", "_z", "_log_p")


@dataclass(frozen=True)
class Plan:
    """What every matrix is held against, and how finely the answer is kept.

    Parameters
    ----------
    tables, k
        The spectrum and the number of leading directions of each table, by name.
    tolerance
        Share of the largest singular value up to which others count as zero; None for the noise of the stored dtype.
    blocks, head_blocks, table_blocks
        Parts into which the directions of whole matrices, of heads and of tables are cut.
    full
        Whether to keep overlaps entry by entry as well.
    """

    tables: Mapping[str, Spectrum]
    k: Mapping[str, int]
    tolerance: float | None
    blocks: int
    head_blocks: int
    table_blocks: int
    full: bool


@dataclass
class Found:
    """Arrays by name, one list entry per layer."""

    parts: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def add(self, name: str, values: np.ndarray) -> None:
        self.parts.setdefault(name, []).append(values)

    def stacked(self) -> dict[str, np.ndarray]:
        return {name: np.stack(values) for name, values in self.parts.items()}


def matrix_names(heads: Heads) -> tuple[str, ...]:
    """The matrices of a layer that this checkpoint has."""
    if "MLP" not in heads.reader.stored.parts or heads.stack.mlp is None:
        return ROLES
    gated = heads.stack.mlp.fused or len(heads.stack.mlp.reads) > 1
    return (*ROLES, *(("gate", "up") if gated else ("in",)), "out")


def layer_results(heads: Heads, plan: Plan, memory: int | str) -> dict[str, np.ndarray]:
    """Overlaps, corners and alignments of all layers: arrays [layer, ...] by name."""
    found = Found()
    budget = memory_bytes(memory)
    per_layer, once = heads.block_bytes()
    # Weights get an eighth of the budget: their double-precision copies take more.
    for block in heads.blocks(min(budget, max(budget // 8, per_layer + once))):
        noise = {role: block.noise(role) for role in ROLES}  # of all its layers at once
        for place, layer in enumerate(block.layers):
            own = {role: each[place] for role, each in noise.items()}
            _add_whole_matrices(found, plan, _matrices(heads, block, place, layer, own), budget // 8)
            for role in ROLES:
                _add_heads(found, plan, role, _in_stream(block, role, place), own[role])
        del block  # before the next is read
    return found.stacked()


def _in_stream(block: HeadBlock, role: Role, place: int) -> Float[Tensor, "head d n"]:
    W = block.weight(role)[place]
    return W.mT if role == "O" else W


def _matrices(
    heads: Heads, block: HeadBlock, place: int, layer: int, noise: Mapping[Role, Float[Tensor, " _"]]
) -> Iterator[tuple[Float[Tensor, "d n"], float]]:
    """The whole matrices of one layer in the order of `matrix_names`, with directions of the stream as rows.

    Each with the error that storing left in an entry, over the rms of the entries; `noise` is that of every head.
    """
    for role in ROLES:
        W = _in_stream(block, role, place).movedim(1, 0).flatten(1)
        error = noise[role].double().square().mean().sqrt()
        yield W, float(torch.nan_to_num(error / W.double().square().mean().sqrt(), nan=0.0))
    if len(matrix_names(heads)) > len(ROLES):
        for name, W in zip(matrix_names(heads)[len(ROLES) :], heads.mlp_matrices(layer), strict=True):
            yield W.mT if name == "out" else W, heads.mlp_roundoff(layer)


def _add_whole_matrices(
    found: Found, plan: Plan, matrices: Iterator[tuple[Float[Tensor, "d n"], float]], scratch: int
) -> None:
    """One layer's whole matrices, one in memory at a time: arrays [matrix, table, ...]."""
    rows: dict[str, list[list[np.ndarray]]] = {}
    ranks = []
    for W, roundoff in matrices:
        spectrum = matrix_spectrum(W, RankRule(plan.tolerance, roundoff), scratch)
        del W
        ranks.append(spectrum.rank)
        cells = [_cell(spectrum, plan, name) for name in plan.tables]
        for name in cells[0]:
            rows.setdefault(name, []).append([cell[name] for cell in cells])
    found.add("matrix_rank", np.array(ranks))
    for name, values in rows.items():
        found.add(name, np.array(values))


def _cell(spectrum: Spectrum, plan: Plan, name: str) -> dict[str, np.ndarray]:
    """Everything about one matrix and one table."""
    table, d = plan.tables[name], spectrum.d
    overlap = squared_overlap(spectrum.directions, table.directions)
    average, z = block_scores(overlap, (plan.blocks, plan.table_blocks), d)
    out = {"overlap": average.astype(np.float32), "overlap_z": z.astype(np.float32)}
    out |= {f"corner{part}": values for part, values in corners(overlap, d).items()}
    entries = overlap.cpu().numpy()
    w = spectrum.weights if spectrum.rank else np.full(0, np.nan)
    for title, b in (("alignment", _projector(table, plan.k[name])), ("energy_alignment", table.weights)):
        found = alignment(entries, w, b, d) if spectrum.rank else dict.fromkeys(PARTS, np.array(np.nan))
        out |= {f"{title}{part}": values for part, values in found.items()}
    if plan.full:
        out["overlap_full"] = padded(entries, d)
    return out


def _projector(table: Spectrum, k: int) -> Float[np.ndarray, " s"]:
    """The eigenvalues of Pi_k along the table's directions."""
    return (np.arange(table.rank) < k).astype(np.float64)


def _add_heads(
    found: Found, plan: Plan, role: Role, W: Float[Tensor, "head d n"], noise: Float[Tensor, " head"]
) -> None:
    """One layer's heads of one role: arrays [head, table, ...]."""
    directions, values = batched_directions(W)
    share, floor = plan.tolerance, noise_floor(noise, *W.shape[-2:]) if plan.tolerance is None else 0.0
    share = default_tolerance(max(W.shape[-2:]), torch.float64) if share is None else share
    rank = spectrum_rank(values, share, floor)
    there = torch.arange(values.shape[1], device=values.device) < rank[:, None]
    energy = torch.where(there, values.square(), 0.0)
    # A head of zeros has no direction at all: 0/0 makes its weights NaN, which is what undefined means.
    w = (energy / energy.sum(1, keepdim=True)).cpu().numpy()
    rows: dict[str, list[np.ndarray]] = {}
    for name, table in plan.tables.items():
        overlap = squared_overlap(directions, table.directions)
        for part, array in alignment(overlap.cpu().numpy(), w, _projector(table, plan.k[name]), table.d).items():
            rows.setdefault(f"head_alignment_{role}{part}", []).append(array)
        seen = torch.where(there[:, :, None], overlap, torch.nan)
        average = block_averages(seen, (plan.head_blocks, plan.table_blocks)).cpu().numpy().astype(np.float32)
        rows.setdefault(f"head_overlap_{role}", []).append(average)
    for title, arrays in rows.items():
        found.add(title, np.stack(arrays, axis=1))


def alignment(
    overlap: Float[np.ndarray, "*batch r s"], w: Float[np.ndarray, "*batch r"], b: Float[np.ndarray, " s"], d: int
) -> dict[str, Float[np.ndarray, "*batch"]]:
    """sum_ij w_i b_j overlap_ij with its null, z and log p, by the endings of their names (PARTS).

    Parameters
    ----------
    overlap
        Squared overlaps of the matrix's directions with the table's.
    w, b
        Weights of both, descending; NaN in w for a matrix without directions.
    d
        Dimension of the stream; directions that are not listed have weight 0.
    """
    value = np.asarray(np.einsum("...rs,...r,s->...", overlap, w, b))
    mean, sd = rotated_trace_moments(w.sum(-1), (w**2).sum(-1), b.sum(), (b**2).sum(), d)
    mean = np.where(np.isnan(value), np.nan, mean)
    spectra, column = w.reshape(-1, w.shape[-1]), value.reshape(-1, 1)
    tails = (rotated_trace_log_tail(column, spectra, b[None], d, upper).reshape(value.shape) for upper in (True, False))
    return dict(zip(PARTS, (value, mean, z_score(value, mean, sd, SMALL), two_sided(*tails)), strict=True))
