"""One pass over the weights: singular values of every matrix, a block of layers at a time.

1. Attention: whole matrices, heads, and products through their factors; the sums that the alignment follows from.
2. The MLP, layer by layer. 3. Tables, each in blocks of rows: the d_model x d_model Gram matrix is all that is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from headspan.dims import LAYER, ROLES, Role
from headspan.heads import HeadBlock, Heads
from headspan.heads.logits import bilinear_factors
from headspan.heads.memory import memory_bytes
from headspan.lenses.spectra.alignment import block_alignment
from headspan.lenses.spectra.kinds import FACTORS, MLP, PER_HEAD, TABLES, WHOLE, Kind, attention_kind, available_kinds
from headspan.subspaces import (
    default_tolerance,
    noise_floor,
    product_singular_values,
    singular_values,
    spectrum_rank,
)
from headspan.threads import one_thread

BLOCK = 2**26
COPIES = 6
"""Arrays in double precision as large as both factors of a product that its values and sums take, over a little."""


@dataclass
class MatrixValues:
    """Singular values by kind, and sums by name: lists of arrays, one per block of layers."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    values: dict[str, list[np.ndarray]] = field(default_factory=dict)
    ranks: dict[str, list[np.ndarray]] = field(default_factory=dict)
    sums: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def add(self, kind: Kind, values: Tensor, rank: Tensor, heads: slice | None = None) -> None:
        """The next values of a kind and their rank: of the next layers, or of some `heads` of the layers at work."""
        self.kinds[kind.name] = kind
        _append(self.values.setdefault(kind.name, []), values.numpy(force=True), heads)
        _append(self.ranks.setdefault(kind.name, []), rank.numpy(force=True), heads)

    def add_sums(self, arrays: dict[str, np.ndarray], heads: slice) -> None:
        for name, array in arrays.items():
            _append(self.sums.setdefault(name, []), array, heads)

    def spectra(self, name: str) -> np.ndarray:
        """[*axes, rank] of one kind."""
        return self._joined(self.values, name)

    def rank(self, name: str) -> np.ndarray:
        """[*axes] of one kind."""
        return self._joined(self.ranks, name)

    def _joined(self, of: dict[str, list[np.ndarray]], name: str) -> np.ndarray:
        return np.concatenate(of[name]) if self.kinds[name].axes else of[name][0]

    def sum(self, name: str) -> np.ndarray:
        return np.concatenate(self.sums[name])


def _append(parts: list[np.ndarray], array: np.ndarray, heads: slice | None) -> None:
    """Another block of layers, or more heads of the last one."""
    if heads is None or heads.start == 0:
        parts.append(array)
    else:
        parts[-1] = np.concatenate([parts[-1], array], axis=1)


def matrix_values(
    heads: Heads, wanted: Collection[str], delta: int, tolerance: float | None, memory: int | str
) -> MatrixValues:
    """The pass over all layers and tables; ranks by the noise of the stored dtype, or by a tolerance."""
    # Products of weights are computed in double precision, so attention is converted once, as it is read.
    found, budget, double = MatrixValues(), memory_bytes(memory), heads.to("float64")
    for roles, kinds in _groups(double, wanted, budget):
        for block in _blocks(double, roles, budget):
            _attention(found, double, block, kinds, tolerance, budget // 4)
            if "W_QK" in kinds:
                _queries_and_keys(found, double, block, delta, tolerance, budget // 4)
            del block  # before the next is read
    plain = heads.to(_storing_dtype(heads))
    if set(wanted) & set(MLP):
        for layer in heads.layers:
            _mlp(found, plain, layer, wanted, tolerance, budget // 4)
    for name in TABLES:
        if name in wanted:
            plain.require_room_for(name, budget // 2)
            table = plain.table(name)
            shape = (table.shape[0], table.shape[1])
            values = singular_values(table, budget // 4)
            rank = _rank(values, shape, plain.roundoff(name) * _rms(values, shape), tolerance)
            found.add(Kind(name, (), *shape, None, (shape,)), values, rank)
            del table
    return found


def _groups(heads: Heads, wanted: Collection[str], budget: int) -> Iterator[tuple[tuple[Role, ...], list[str]]]:
    """Roles to be read together, and what is wanted of them: all at once, or in two halves where a layer is large."""
    roles = needed_roles(wanted)
    if not roles:
        return
    if sum(heads.block_bytes(roles)) <= budget // 4:
        yield roles, list(wanted)
        return
    for half in (("Q", "K"), ("V", "O")):
        kinds = [name for name in wanted if set(needed_roles([name])) & set(half)]
        if kinds:
            yield needed_roles(kinds), kinds


def _blocks(heads: Heads, roles: tuple[Role, ...], budget: int) -> Iterator[HeadBlock]:
    # Heads side by side, factors and Gram matrices take several times what the weights take. Small blocks are
    # quicker too: their scratch memory is used again instead of being asked from the system anew.
    per_layer, once = heads.block_bytes(roles)
    return heads.blocks(min(budget, max(min(budget // 6, BLOCK), per_layer + once)), roles)


def _storing_dtype(heads: Heads) -> torch.dtype:
    """What matrices are read in that are used one by one: double precision only where something is done to them."""
    products = [table for table in (heads.stack.tokens, heads.stack.unembedding) if table and table.through]
    as_they_are = heads.fold == "none" and not heads.center and not products
    return torch.float32 if as_they_are and heads.reader.stored_dtype.itemsize <= 4 else torch.float64


def needed_roles(wanted: Collection[str]) -> tuple[Role, ...]:
    """The attention weights that kinds of matrices need."""
    needed = {role for name in wanted for role in FACTORS.get(name, ())}
    needed |= {role for role in ROLES if f"W_{role}" in wanted or f"W_{role}_head" in wanted}
    return tuple(role for role in ROLES if role in needed)


@one_thread()
def _attention(
    found: MatrixValues, heads: Heads, block: HeadBlock, wanted: Collection[str], tolerance: float | None, memory: int
) -> None:
    for role, whole, head in zip(ROLES, WHOLE, PER_HEAD, strict=True):
        if head in wanted:
            W = block.weight(role)
            values = singular_values(W, memory)
            found.add(attention_kind(heads, head), values, _rank(values, W.shape, block.noise(role), tolerance))
        if whole in wanted:
            W, noise = _side_by_side(block.weight(role), role), block.noise(role).square().mean(1).sqrt()
            values = singular_values(W, memory)
            found.add(attention_kind(heads, whole), values, _rank(values, W.shape, noise, tolerance))
    if "W_OV" in wanted:
        ranks = [_role_ranks(block, role, memory, tolerance) for role in ("V", "O")]
        for part, own in _head_pieces(heads, block, memory):
            W_V, outputs = block.W_V[:, own], block.W_O[:, part].mT
            values = product_singular_values(W_V, outputs)
            most = torch.minimum(ranks[0][:, own], ranks[1][:, part])
            found.add(attention_kind(heads, "W_OV"), values, _product_rank(values, most, heads, tolerance), part)
            found.add_sums({"norm_V": _norm(W_V), "norm_O": _norm(outputs)}, part)


def _queries_and_keys(
    found: MatrixValues, heads: Heads, block: HeadBlock, delta: int, tolerance: float | None, memory: int
) -> None:
    A, B = bilinear_factors(heads, block, delta)
    ranks = [_role_ranks(block, role, memory, tolerance) for role in ("Q", "K")]
    for part, own in _head_pieces(heads, block, memory):
        values = product_singular_values(A[:, part], B[:, own])
        most = torch.minimum(ranks[0][:, part], ranks[1][:, own])
        found.add(attention_kind(heads, "W_QK"), values, _product_rank(values, most, heads, tolerance), part)
        with one_thread():
            found.add_sums(block_alignment(A[:, part], B[:, own]), part)


def _product_rank(values: Tensor, most: Tensor, heads: Heads, tolerance: float | None) -> Tensor:
    """A product has no more rank than either factor, which is decided where the weights were stored: `most`."""
    share = default_tolerance(heads.d_model, torch.float64) if tolerance is None else tolerance
    return torch.minimum(spectrum_rank(values, share), most)


def _head_pieces(heads: Heads, block: HeadBlock, memory: int) -> Iterator[tuple[slice, Tensor]]:
    """Query heads a few at a time, with the kv heads they read: as many as fit into `memory` with their products."""
    one = len(block.layers) * heads.d_model * 2 * max(heads.d_head, heads.d_value) * 8 * COPIES
    at_once = max(1, memory // one)
    for start in range(0, heads.n_heads, at_once):
        part = slice(start, start + at_once)
        yield part, heads.kv_head_of[part]


def _side_by_side(weight: Tensor, role: Role) -> Tensor:
    """[layer, rows, columns]: the heads of a layer as one matrix."""
    if role == "O":
        return weight.flatten(1, 2)
    return weight.transpose(1, 2).flatten(2, 3)


def _norm(weight: Tensor) -> np.ndarray:
    norm: np.ndarray = weight.double().square().sum((-2, -1)).sqrt().numpy(force=True)
    return norm


def _rank(values: Tensor, shape: Sequence[int], noise: Tensor, tolerance: float | None) -> Tensor:
    """How many singular values [..., k] of matrices [..., m, n] are not rounding, by their noise or a tolerance."""
    if tolerance is not None:
        return spectrum_rank(values, tolerance)
    m, n = shape[-2:]
    return spectrum_rank(values, default_tolerance(max(m, n), torch.float64), noise_floor(noise, m, n))


def _rms(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Rms of the entries of matrices [..., m, n], from their singular values [..., k]."""
    rms: Tensor = torch.linalg.vector_norm(values, dim=-1) / (shape[-2] * shape[-1]) ** 0.5
    return rms


def _role_ranks(block: HeadBlock, role: Role, memory: int, tolerance: float | None) -> Tensor:
    W = block.weight(role)
    return _rank(singular_values(W, memory), W.shape, block.noise(role), tolerance)


def _mlp(
    found: MatrixValues, heads: Heads, layer: int, wanted: Collection[str], tolerance: float | None, memory: int
) -> None:
    gated = "W_gate" in available_kinds(heads)
    for name, matrix in zip(MLP if gated else MLP[1:], heads.mlp_matrices(layer), strict=True):
        if name in wanted:
            shape = (matrix.shape[0], matrix.shape[1])
            values = singular_values(matrix[None], memory)
            rank = _rank(values, shape, heads.mlp_roundoff(layer) * _rms(values, shape), tolerance)
            found.add(Kind(name, (LAYER,), *shape, None, (shape,)), values, rank)
        del matrix
