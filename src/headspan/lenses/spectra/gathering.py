"""One pass over the weights: singular values of every matrix, a block of layers at a time.

1. Attention: whole matrices, heads, and products through their factors; the sums that the alignment follows from.
2. The MLP, layer by layer. 3. Tables, each in blocks of rows: the d_model x d_model Gram matrix is all that is kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from headspan.dims import LAYER, ROLES, Role
from headspan.heads import HeadBlock, Heads
from headspan.heads.bilinear import bilinear_factors
from headspan.heads.memory import memory_bytes
from headspan.lenses.spectra.alignment import block_alignment
from headspan.lenses.spectra.kinds import FACTORS, MLP, PER_HEAD, TABLES, WHOLE, Kind, attention_kind
from headspan.subspaces import product_singular_values, singular_values
from headspan.threads import one_thread

BLOCK = 2**26


@dataclass
class Gathered:
    """Singular values by kind, and sums by name: lists of arrays, one per block of layers."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    values: dict[str, list[np.ndarray]] = field(default_factory=dict)
    sums: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def add(self, kind: Kind, values: Tensor) -> None:
        self.kinds[kind.name] = kind
        self.values.setdefault(kind.name, []).append(values.numpy(force=True))

    def add_sums(self, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self.sums.setdefault(name, []).append(array)

    def spectra(self, name: str) -> np.ndarray:
        """[*axes, rank] of one kind."""
        parts = self.values[name]
        return np.concatenate(parts) if self.kinds[name].axes else parts[0]

    def sum(self, name: str) -> np.ndarray:
        return np.concatenate(self.sums[name])


def gather(heads: Heads, wanted: Collection[str], delta: int, memory: int | str) -> Gathered:
    """The pass over all layers and tables."""
    # Everything is computed in double precision, so weights are converted once, as they are read.
    heads, found, budget = heads.to("float64"), Gathered(), memory_bytes(memory)
    roles = roles_of(wanted)
    if roles:
        per_layer, once = heads.block_bytes(roles)
        # Heads side by side, factors and Gram matrices take several times what the weights take. Small blocks are
        # quicker too: their scratch memory is used again instead of being asked from the system anew.
        for block in heads.blocks(min(budget, max(min(budget // 6, BLOCK), per_layer + once)), roles):
            _attention(found, heads, block, wanted, budget // 4)
            if "W_QK" in wanted:
                _queries_and_keys(found, heads, block, delta)
    if set(wanted) & set(MLP):
        for layer in heads.layers:
            _mlp(found, heads, layer, wanted, budget // 4)
    for name in TABLES:
        if name in wanted:
            table = getattr(heads, name)
            shape = (table.shape[0], table.shape[1])
            found.add(Kind(name, (), *shape, None, (shape,)), singular_values(table, budget // 4))
    return found


def roles_of(wanted: Collection[str]) -> tuple[Role, ...]:
    """The attention weights that kinds of matrices need."""
    needed = {role for name in wanted for role in FACTORS.get(name, ())}
    needed |= {role for role in ROLES if f"W_{role}" in wanted or f"W_{role}_head" in wanted}
    return tuple(role for role in ROLES if role in needed)


@one_thread()
def _attention(found: Gathered, heads: Heads, block: HeadBlock, wanted: Collection[str], memory: int) -> None:
    for role, whole, head in zip(ROLES, WHOLE, PER_HEAD, strict=True):
        if head in wanted:
            found.add(attention_kind(heads, head), singular_values(block.weight(role), memory))
        if whole in wanted:
            found.add(attention_kind(heads, whole), singular_values(_side_by_side(block.weight(role), role), memory))
    if "W_OV" in wanted:
        values, outputs = heads.per_query_head(block.W_V), block.W_O.mT
        found.add(attention_kind(heads, "W_OV"), product_singular_values(values, outputs))
        found.add_sums({"norm_V": _norm(values), "norm_O": _norm(outputs)})


def _queries_and_keys(found: Gathered, heads: Heads, block: HeadBlock, delta: int) -> None:
    A, B = bilinear_factors(heads, block, delta)
    found.add(attention_kind(heads, "W_QK"), product_singular_values(A, heads.per_query_head(B)))
    with one_thread():
        found.add_sums(block_alignment(heads, A, B))


def _side_by_side(weight: Tensor, role: Role) -> Tensor:
    """[layer, rows, columns]: the heads of a layer as one matrix."""
    if role == "O":
        return weight.flatten(1, 2)
    return weight.transpose(1, 2).flatten(2, 3)


def _norm(weight: Tensor) -> np.ndarray:
    norm: np.ndarray = weight.double().square().sum((-2, -1)).sqrt().numpy(force=True)
    return norm


def _mlp(found: Gathered, heads: Heads, layer: int, wanted: Collection[str], memory: int) -> None:
    mlp = heads.mlp(layer)
    matrices = dict(zip(("W_in", "W_gate"), reversed(mlp.W_in), strict=False)) | {"W_out": mlp.W_out}
    for name in MLP:
        if name in wanted:
            shape = (matrices[name].shape[0], matrices[name].shape[1])
            found.add(Kind(name, (LAYER,), *shape, None, (shape,)), singular_values(matrices[name][None], memory))
