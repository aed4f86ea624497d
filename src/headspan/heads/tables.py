"""Embeddings, unembedding, MLP matrices and norms around the heads, in the same fold state as the reader."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families import Table
from headspan.checkpoint.stored_stack import at_layer
from headspan.errors import MissingTensor
from headspan.heads.folding import centred, folded_reader
from headspan.heads.reader import WeightReader


@dataclass(frozen=True)
class MLPWeights:
    """What a layer's MLP reads (one matrix, or gate and up) and writes."""

    W_in: tuple[Float[Tensor, "d_model d_mlp"], ...]
    b_in: tuple[Float[Tensor, " d_mlp"] | None, ...]
    W_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"] | None


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
    weight = reader.rows(stored.unembedding).T
    if reader.fold == "none" or stored.stack.final_norm is None:
        return weight
    folded, _ = folded_reader(weight, None, reader.norm(stored.stack.final_norm), reader.center)
    return folded


def mlp_weights(reader: WeightReader, layer: int) -> MLPWeights:
    """The MLP of one layer."""
    mlp = reader.stored.stack.mlp
    if mlp is None:
        raise MissingTensor(f"a {reader.checkpoint.family} has no MLP that headspan describes")
    reads = [reader.linear(at_layer(linear, layer), reader.d_model, mlp.width) for linear in mlp.reads]
    W_out, b_out = reader.linear(at_layer(mlp.write, layer), mlp.width, reader.d_model)
    if reader.fold == "layernorm" and mlp.norm is not None:
        norm = reader.norm(mlp.norm, layer)
        reads = [folded_reader(weight, bias, norm, reader.center) for weight, bias in reads]
    return MLPWeights(
        W_in=tuple(weight for weight, _ in reads),
        b_in=tuple(bias for _, bias in reads),
        W_out=_written(reader, W_out),
        b_out=None if b_out is None else _written(reader, b_out),
    )


def _written(reader: WeightReader, rows: Tensor) -> Tensor:
    """Rows that are added to the stream, centred if the heads are."""
    return centred(rows) if reader.center else rows


def _table_rows(reader: WeightReader, table: Table) -> Tensor:
    return reader.rows(reader.stored.names.require(*table.names).name)[table.unused_rows :]
