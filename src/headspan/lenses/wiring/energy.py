r"""How the energy of a matrix lies in the stream, and how much of it is in a subspace.

1. Every matrix that touches the stream becomes a quadratic form C / tr C, with C = W W^T for one that reads (MLP in,
   gate and up side by side; W_U) and C = W^T W for one that writes (MLP out, W_E, W_pos). Tables are read in blocks of
   rows, so that d x d is all that is kept of them.
2. A head's subspace is a projector P = U U^T. The share of the matrix's energy in it is

       tr(P C) / tr(C) = |U^T W|_F^2 / |W|_F^2,   p/d under a random rotation.

   Two matrices have tr(A C) / (tr A tr C), 1/d under a random rotation. Both are inner products of d x d matrices.
3. All forms are kept in slabs of rows, in memory or in a scratch file. Of a block of heads, the same rows of their
   projectors are formed and multiplied with all forms at once: d^2 (p + matrices) operations a head, and neither a
   whole projector nor all forms need be in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families.order import Part
from headspan.dims import Role
from headspan.heads import Heads
from headspan.lenses.wiring.parts import READ_ROLES
from headspan.subspaces.grams import row_gram
from headspan.subspaces.slabs import ScratchSlabs, Slabs, TensorSlabs, scratch_slabs, slab_count
from headspan.subspaces.subspace import Subspace, concatenate
from headspan.threads import one_thread

Array = Float[np.ndarray, "..."]
HEIGHT = 32
"""Rows of a slab where memory allows."""
BLOCK = 2**27
"""Bytes of weights read at a time where memory allows: larger blocks are no quicker."""
TILE = 2**23
"""Bytes of projectors' rows formed at a time: they are still in the processor's cache when they are multiplied."""


@dataclass(frozen=True)
class Matrix:
    """One matrix of the stream: W_E, W_pos, logits, or the MLP of a layer as writer or reader."""

    part: Part
    writes: bool
    layer: int = 0


@dataclass(frozen=True)
class Energies:
    """What was measured of writers (tables, MLP out) and readers (MLP in, logits), in the order they were given.

    Parameters
    ----------
    shares, ranks
        Of every role, [heads, matrices] and [heads]: Q, K and V with the writers, O with the readers.
    between
        [writers, readers]: two matrices each.
    spectra
        Eigenvalues of the forms, descending, adding up to 1; [writers, d] and [readers, d].
    """

    shares: dict[Role, Array]
    ranks: dict[Role, np.ndarray]
    between: Array
    spectra: tuple[Array, Array]


def energies(
    heads: Heads,
    writers: Sequence[Matrix],
    readers: Sequence[Matrix],
    roles: Sequence[Role],
    *,
    centered: bool,
    tolerance: float | None,
    memory: int,
    written_by: Heads | None = None,
) -> Energies:
    """All shares of energy between these matrices, of `written_by` where that is another stack, and heads' roles."""
    matrices = [*writers, *readers]
    with _forms(heads, len(matrices), memory) as forms:
        spectra: dict[Matrix, Array] = {}
        places: dict[Matrix, int] = {}
        for matrix, gram in _grams(written_by or heads, matrices, centered, memory // 8):
            form = _normalized(gram)
            spectra[matrix], places[matrix] = _spectrum(form), len(places)
            if isinstance(forms, ScratchSlabs):
                forms.append(form[None])
            else:
                forms.factors[places[matrix]] = form
            del form, gram
        used = [[places[matrix] for matrix in side] for side in (writers, readers)]
        between = torch.zeros(len(writers), len(readers), dtype=heads.dtype, device=heads.device)
        for number in range(slab_count(forms)):
            rows = forms.slab(number).flatten(1)
            between.addmm_(rows[used[0]], rows[used[1]].mT)
        shares, ranks = _head_shares(heads, forms, used, roles, tolerance, memory)
    empty = np.zeros((0, heads.d_model))
    first, second = (np.stack([spectra[m] for m in side]) if side else empty for side in (writers, readers))
    return Energies(shares, ranks, _array(between), (first, second))


@contextmanager
def _forms(heads: Heads, count: int, memory: int) -> Iterator[Slabs]:
    """Room for all forms: in memory where they take a quarter of it at most, else in a scratch file."""
    d, item = heads.d_model, heads.dtype.itemsize
    members = max(1, sum(heads.shape(role)[1] for role in (*READ_ROLES, "O")))
    height = max(1, min(HEIGHT, d, memory // 16 // (d * item * max(members, count, 1))))
    shape = (count, d, d)
    if count * d * d * item <= memory // 4:
        yield TensorSlabs(torch.empty(shape, dtype=heads.dtype, device=heads.device), height)
        return
    with scratch_slabs(shape, height, heads.dtype, heads.device) as scratch:
        yield scratch


def _grams(
    heads: Heads, matrices: Sequence[Matrix], centered: bool, memory: int
) -> Iterator[tuple[Matrix, Float[Tensor, "d d"]]]:
    """The Gram matrix of every matrix on the side of the stream; each MLP is read once for both of its own."""
    for matrix in matrices:
        if matrix.part != "MLP":
            yield matrix, _table_gram(heads, "W_U" if matrix.part == "logits" else matrix.part, centered, memory)
    for layer in sorted({matrix.layer for matrix in matrices if matrix.part == "MLP"}):
        read = torch.zeros(heads.d_model, heads.d_model, dtype=heads.dtype, device=heads.device)
        written = torch.zeros_like(read)
        for place, W in enumerate(heads.mlp_matrices(layer)):
            if place < reading_matrices(heads):
                read += row_gram(W)
            else:
                written += row_gram(W.mT)
        for matrix in matrices:
            if matrix.part == "MLP" and matrix.layer == layer:
                yield matrix, written if matrix.writes else read


def reading_matrices(heads: Heads) -> int:
    """How many matrices an MLP reads the stream with: one, or gate and up."""
    mlp = heads.stack.mlp
    return 0 if mlp is None else 2 if mlp.fused else len(mlp.reads)


def _table_gram(heads: Heads, name: str, centered: bool, memory: int) -> Float[Tensor, "d d"]:
    """The Gram matrix of a table's rows, of those less their mean if `centered`."""
    gram = torch.zeros(heads.d_model, heads.d_model, dtype=heads.dtype, device=heads.device)
    total, count = torch.zeros(heads.d_model, dtype=heads.dtype, device=heads.device), 0
    for rows in heads.table_rows(name, memory):
        gram += row_gram(rows.mT)
        total, count = total + rows.sum(0), count + len(rows)
    return gram - torch.outer(total, total) / count if centered else gram


def _normalized(gram: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """C / tr C; NaN for a matrix of zeros."""
    trace = gram.trace()
    return gram / trace if trace > 0 else gram * torch.nan


@one_thread()
def _spectrum(form: Float[Tensor, "d d"]) -> Array:
    if bool(form.isnan().any()):
        return np.full(len(form), np.nan)
    values = torch.linalg.eigvalsh(form).double().clamp(min=0).flip(0)
    return _array(values / values.sum())


def _head_shares(
    heads: Heads, forms: Slabs, used: Sequence[list[int]], roles: Sequence[Role], tolerance: float | None, memory: int
) -> tuple[dict[Role, Array], dict[Role, np.ndarray]]:
    """tr(P C) of every head's subspace and every form it goes with, and the ranks."""
    found: dict[Role, list[Array]] = {role: [] for role in roles}
    ranks: dict[Role, list[np.ndarray]] = {role: [] for role in roles}
    if not roles:
        return {}, {}
    per_layer, once = heads.block_bytes(roles)
    for block in heads.blocks(min(memory, max(min(memory // 8, BLOCK), per_layer + once)), roles):
        spaces = {role: block.spaces(role, tolerance).reshape(-1) for role in roles}
        del block
        for group in (tuple(role for role in READ_ROLES if role in roles), ("O",) if "O" in roles else ()):
            if not group:
                continue
            table = _traces(concatenate([spaces[role] for role in group]), forms, used[int(group == ("O",))])
            start = 0
            for role in group:
                stop = start + len(spaces[role].rank)
                found[role].append(table[start:stop])
                ranks[role].append(spaces[role].rank.cpu().numpy())
                start = stop
    return ({role: np.concatenate(found[role]) for role in roles}, {r: np.concatenate(ranks[r]) for r in roles})


def _traces(spaces: Subspace, forms: Slabs, used: list[int]) -> Array:
    """tr(U U^T C) for every subspace and every form used; NaN for a subspace without dimensions.

    Both matrices are symmetric: what lies left of a slab's diagonal square repeats what lies right of it.
    """
    U, height = spaces.basis, forms.height
    table = torch.zeros(len(U), len(used), dtype=U.dtype, device=U.device)
    step = max(1, TILE // (height * U.shape[1] * U.dtype.itemsize))
    for number in range(slab_count(forms) if used else 0):
        first, after = number * height, (number + 1) * height
        form = forms.slab(number)[used][..., first:]  # a copy
        form[..., height:] *= 2
        for start in range(0, len(U), step):
            some = U[start : start + step]
            rows = some[:, first:after] @ some[:, first:].mT
            table[start : start + step].addmm_(rows.flatten(1), form.flatten(1).mT)
    return _array(torch.where((spaces.rank > 0)[:, None], table, torch.nan))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().cpu().numpy()
