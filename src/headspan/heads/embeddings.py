"""Embeddings, unembedding and MLPs: the matrices around the heads, in the same fold state as the reader.

From the tables to what the first attention layer reads: what comes of the token, of the position, of neither.

A LayerNorm is linear but for its division by sigma: with C the removal of the mean and c a constant row,

    LN(e + p + c) = g * C e / sigma + g * C p / sigma + (g * C c / sigma + b),   sigma^2 = |C (e + p + c)|^2 / d + eps,

so the split into three summands is exact once sigma is taken from their sum. An RMSNorm is the same without C and b.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families import Linear, Table
from headspan.checkpoint.families.parts import layer_norm
from headspan.errors import ArgumentError, MissingTensor
from headspan.heads.heads import Heads
from headspan.heads.norms import NormWeights, fold_norm, without_mean
from headspan.heads.reader import WeightReader


@dataclass(frozen=True)
class MLPWeights:
    """What a layer's MLP reads (one matrix, or gate and up) and writes."""

    W_in: tuple[Float[Tensor, "d_model d_mlp"], ...]
    b_in: tuple[Float[Tensor, " d_mlp"] | None, ...]
    W_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"] | None

    @classmethod
    def of(cls, tensors: Sequence[Tensor | None]) -> MLPWeights:
        """From each matrix with its bias after it, the writing one last."""
        weights, biases = [weight for weight in tensors[::2] if weight is not None], tensors[1::2]
        return cls(W_in=tuple(weights[:-1]), b_in=tuple(biases[:-1]), W_out=weights[-1], b_out=biases[-1])


def token_table(reader: WeightReader) -> Float[Tensor, "token d_model"]:
    """W_E, one row per token."""
    table = reader.stored.stack.tokens
    if table is None:
        raise MissingTensor(f"a {reader.checkpoint.family} has no token table")
    return _written(reader, _table_rows(reader, table))


def position_table(reader: WeightReader) -> Float[Tensor, "position d_model"]:
    """W_pos, one row per position that the model can use."""
    table = reader.stored.stack.position_table
    if table is None:
        raise MissingTensor(
            f"no learned position table: a {reader.checkpoint.family} has {reader.stored.stack.positions} positions"
        )
    return _written(reader, _table_rows(reader, table))


def unembedding(reader: WeightReader) -> Float[Tensor, "d_model token"]:
    """W_U; where it is tied to the token table and not stored, that table's transpose."""
    stored = reader.stored
    if stored.unembedding is None:
        raise MissingTensor(f"'{reader.checkpoint.source}' has no unembedding, and it is not tied to the token table")
    table = stored.stack.unembedding
    weight = reader.rows(stored.unembedding, None if table is None else table.width).T
    if table is not None and table.through is not None:
        weight = reader.linear(table.through, reader.d_model, weight.shape[0])[0] @ weight
    if reader.fold == "none" or stored.stack.final_norm is None:
        return weight
    folded, _ = fold_norm(weight, None, reader.norm(stored.stack.final_norm), reader.center)
    return folded


TABLES = {"W_E": token_table, "W_pos": position_table, "W_U": unembedding}


def read_table(reader: WeightReader, name: str) -> Float[Tensor, "_ _"]:
    """W_E, W_pos or W_U by its name."""
    if name not in TABLES:
        raise ArgumentError(f"there is no table {name!r:.40}; tables are {', '.join(TABLES)}")
    return TABLES[name](reader)


def table_rows(reader: WeightReader, name: str, memory: int) -> Iterator[Float[Tensor, "_ d_model"]]:
    """The rows of W_E or W_pos, or of W_U transposed, in blocks that take about `memory` bytes in the wanted form.

    The table itself is held as it is stored. One whose rows are narrower than the stream is handed out whole.
    """
    stored, stack = reader.stored, reader.stored.stack
    table = {"W_E": stack.tokens, "W_pos": stack.position_table, "W_U": stack.unembedding}[name]
    own = stored.unembedding if name == "W_U" else None if table is None else stored.names.find(*table.names)
    if table is None or own is None or table.through is not None:
        whole = read_table(reader, name)
        yield whole.T if name == "W_U" else whole
        return
    (raw,) = reader.checkpoint.take({own: reader.checkpoint.store.infos[own].shape}).values()
    rows = raw.reshape(-1, raw.shape[-1])[table.unused_rows :]
    fold = name == "W_U" and reader.fold != "none" and stack.final_norm is not None
    norm = reader.norm(stack.final_norm) if fold and stack.final_norm is not None else None
    step = max(1, memory // (2 * reader.d_model * reader.dtype.itemsize))
    for start in range(0, len(rows), step):
        block = reader.convert(rows[start : start + step])
        if norm is not None:
            yield fold_norm(block.T, None, norm, reader.center)[0].T
        else:
            yield block if name == "W_U" else _written(reader, block)


def table_bytes(reader: WeightReader, name: str) -> int:
    """Bytes that reading W_E, W_pos or W_U takes: the stored table, and its copy where it is wanted in another form."""
    stored, stack = reader.stored, reader.stored.stack
    table = {"W_E": stack.tokens, "W_pos": stack.position_table}.get(name)
    names = stored.names
    info = names.infos[stored.unembedding] if name == "W_U" and stored.unembedding else None
    if table is not None:
        info = names.require(*table.names)
    if info is None:
        return 0
    items = math.prod(info.shape)
    own: torch.dtype = getattr(torch, info.dtype)
    copied = own != reader.dtype or reader.fold != "none" or reader.center
    return items * (own.itemsize + (reader.dtype.itemsize if copied else 0))


def table_roundoff(reader: WeightReader, name: str) -> float:
    """Error of an entry of W_E, W_pos or W_U over the rms of its entries; sqrt(2) as much for a product of two."""
    stored, stack = reader.stored, reader.stored.stack
    tables = {"W_E": stack.tokens, "W_pos": stack.position_table, "W_U": stack.unembedding}
    table = tables[name]
    own = stored.unembedding if name == "W_U" else None if table is None else stored.names.find(*table.names)
    through = None if table is None else table.through
    parts = [Linear(own)] if own is not None else []
    parts += [] if through is None else [through]
    return 2 ** (0.5 * (len(parts) - 1)) * max(map(reader.roundoff, parts))


def mlp_roundoff(reader: WeightReader, layer: int) -> float:
    """Error of an entry of a layer's MLP matrices over the rms of their entries; the coarsest of them."""
    mlp = reader.stored.stack.mlp
    linears = () if mlp is None else (*mlp.reads, mlp.write)
    return max((reader.roundoff(reader.stored.at_layer(linear, layer)) for linear in linears), default=0.0)


def mlp_linears(reader: WeightReader, layer: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """What the MLP reads with, then what it writes with, each with its bias; none is held while another is read."""
    mlp, stored = reader.stored.stack.mlp, reader.stored
    if mlp is None:
        kind = "a mixture of experts, not one MLP" if stored.stack.experts else "no MLP in this stack"
        raise MissingTensor(f"a {reader.checkpoint.family} has {kind}")
    norm = reader.norm(mlp.norm, layer) if reader.fold == "layernorm" and mlp.norm is not None else None
    for linear in mlp.reads:
        whole = reader.linear(stored.at_layer(linear, layer), reader.d_model, mlp.width * (2 if mlp.fused else 1))
        for weight, bias in _halves(*whole) if mlp.fused else [whole]:
            yield (weight, bias) if norm is None else fold_norm(weight, bias, norm, reader.center)
        del whole, weight, bias
    W_out, b_out = reader.linear(stored.at_layer(mlp.write, layer), mlp.width, reader.d_model)
    yield _written(reader, W_out), None if b_out is None else _written(reader, b_out)


def _halves(weight: Tensor, bias: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    """Gate and up out of one matrix that holds both."""
    biases = (None, None) if bias is None else bias.chunk(2)
    return list(zip(weight.chunk(2, dim=-1), biases, strict=True))


def _written(reader: WeightReader, rows: Tensor) -> Tensor:
    """Rows that are added to the stream, centered if the heads are."""
    return without_mean(rows) if reader.center else rows


def _table_rows(reader: WeightReader, table: Table) -> Tensor:
    rows = _narrow_rows(reader, table)
    if table.through is None:
        return rows
    return rows @ reader.linear(table.through, rows.shape[-1], reader.d_model)[0]


def _narrow_rows(reader: WeightReader, table: Table) -> Tensor:
    return reader.rows(reader.stored.names.require(*table.names).name, table.width)[table.unused_rows :]


def widened_together(reader: WeightReader) -> bool:
    """Whether one matrix widens tokens and positions alike (ALBERT, ELECTRA): they are added and normed before it."""
    tokens, positions = reader.stored.stack.tokens, reader.stored.stack.position_table
    if tokens is None or positions is None or tokens.through is None:
        return False
    return tokens.through == positions.through


def narrow_table(reader: WeightReader, name: str) -> Float[Tensor, "row width"]:
    """W_E or W_pos before the matrix that widens its rows to d_model."""
    table = {"W_E": reader.stored.stack.tokens, "W_pos": reader.stored.stack.position_table}[name]
    if table is None:
        raise MissingTensor(f"a {reader.checkpoint.family} has no table {name}")
    return _narrow_rows(reader, table)


@dataclass(frozen=True)
class FirstRead:
    """The norm between the tables and the first attention layer, with what is added and multiplied before it."""

    norm: NormWeights
    constant: Float[Tensor, " d_model"] | None
    token_scale: float

    def split(
        self, tokens: Float[Tensor, "*n d_model"], positions: Float[Tensor, "*n d_model"]
    ) -> tuple[Float[Tensor, "*n d_model"], Float[Tensor, "*n d_model"], Float[Tensor, "*n d_model"]]:
        """What is read because of the token, because of the position, and whatever both are; their sum is all of it."""
        tokens = self.token_scale * tokens
        rest = torch.zeros_like(tokens) if self.constant is None else self.constant.to(tokens).expand_as(tokens)
        parts = [tokens, positions, rest]
        if self.norm.kind == "layernorm":
            parts = [without_mean(part) for part in parts]
        sigma = (sum(parts).square().mean(-1, keepdim=True) + self.norm.eps).sqrt()  # type: ignore[union-attr]
        token, position, rest = (self.norm.gain.to(tokens) * part / sigma for part in parts)
        return token, position, rest if self.norm.bias is None else rest + self.norm.bias.to(tokens)


def first_read(heads: Heads) -> FirstRead:
    """What stands between the tables and layer 0 of these heads; refused by name where headspan has no description."""
    stack, family = heads.stack, heads.checkpoint.family
    for table in (stack.tokens, stack.position_table):
        if table is not None and table.through is not None:
            raise MissingTensor(f"a {family} norms token and position before it widens them to d_model")
    entry = stack.entry
    if entry is None:
        if stack.norm_place != "before" or 0 in stack.norm.absent:
            raise MissingTensor(f"what a {family} does between its tables and layer 0 is not described")
        return FirstRead(heads.norm(0), None, 1.0)
    names, config = heads.reader.stored.names, heads.checkpoint.config
    norm = heads.reader.norm(layer_norm(entry.norm.format(stack=stack.name), stack.norm.eps))
    found = None if entry.constant is None else names.find(entry.constant)
    constant = None if found is None else heads.reader.rows(found)[0]
    scaled = entry.root_scale is not None and config.flag(entry.root_scale)
    return FirstRead(norm, constant, heads.d_model**0.5 if scaled else 1.0)
