"""A token table as it is stored, one row per token, and what stands between its rows and the stream.

What the model does to a row on its way is linear: a matrix that widens it (ALBERT, ELECTRA), the gain and centering of
a norm, and a fold. So the score of a token along a direction of the stream is the score of its stored row along the
direction pulled back through all of that, and the table itself is never changed, widened or copied. A table of 262,144
tokens in half precision stays in the file and is converted a block of tokens at a time.

A norm's division by the size of each row is a positive factor per token and stays outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.checkpoint.families.parts import layer_norm
from headspan.errors import MissingTensor
from headspan.heads.heads import Heads
from headspan.heads.norms import without_mean
from headspan.heads.reader import WeightReader

BLOCK = 2**24
"""Entries of a table that are converted at a time where memory allows."""


@dataclass(frozen=True)
class TokenRows:
    """W_E, or W_U turned so that a token is a row.

    Parameters
    ----------
    name
        "W_E" or "W_U".
    stored
        [token, width], as the file has it.
    pull
        [d_model, width]: stored rows times its transpose are rows of the table. None where they are the same.
    """

    name: str
    stored: Float[Tensor, "token width"]
    pull: Float[Tensor, "d_model width"] | None

    @property
    def n_tokens(self) -> int:
        return self.stored.shape[0]

    def pulled_back(self, directions: Float[Tensor, "n d_model"]) -> Float[Tensor, "n width"]:
        """Directions of the stream as directions of the stored rows: scores of the latter are scores in the stream."""
        return directions if self.pull is None else directions @ self.pull.to(directions)

    def vectors(self, tokens: Int[Tensor, " n"], dtype: torch.dtype) -> Float[Tensor, "n d_model"]:
        """Some rows of the table, in the stream."""
        rows = self.stored[tokens].to(dtype)
        return rows if self.pull is None else rows @ self.pull.mT.to(dtype)

    def blocks(
        self, dtype: torch.dtype, keep: Int[Tensor, " kept"] | None = None, entries: int = BLOCK
    ) -> Iterator[tuple[int, Float[Tensor, "block width"]]]:
        """Stored rows in the wanted dtype, with the place of the first; `keep` chooses tokens, in ascending order."""
        n = self.n_tokens if keep is None else len(keep)
        step = max(1, entries // max(self.stored.shape[1], 1))
        for start in range(0, n, step):
            chosen = self.stored[start : start + step] if keep is None else self.stored[keep[start : start + step]]
            yield start, chosen.to(dtype)


def token_rows(heads: Heads, name: str) -> TokenRows:
    """The rows of W_E or W_U in the fold state of `heads`; behind the norm that some encoders put on the table."""
    found = _embedding_rows(heads.reader) if name == "W_E" else _unembedding_rows(heads.reader)
    return TokenRows(name, *found)


def _embedding_rows(reader: WeightReader) -> tuple[Tensor, Tensor | None]:
    stack = reader.stored.stack
    table = stack.tokens
    if table is None:
        raise MissingTensor(f"a {reader.checkpoint.family} has no token table")
    rows = _as_stored(reader, reader.stored.names.require(*table.names).name, table.width)[table.unused_rows :]
    pull: Tensor | None = None
    if table.through is not None:
        pull = reader.linear(table.through, rows.shape[1], reader.d_model)[0].T
    if reader.center:
        pull = without_mean(_matrix(reader, pull), 0)
    if stack.entry is not None:
        norm = layer_norm(stack.entry.norm.format(stack=stack.name), stack.norm.eps)
        if reader.stored.names.find(*norm.weight) is not None:
            gain = reader.norm(norm, width=rows.shape[1]).gain
            pull = without_mean(_matrix(reader, pull) * gain)
    return rows, pull


def _unembedding_rows(reader: WeightReader) -> tuple[Tensor, Tensor | None]:
    stored = reader.stored
    if stored.unembedding is None:
        raise MissingTensor(f"'{reader.checkpoint.source}' has no unembedding, and it is not tied to the token table")
    table = stored.stack.unembedding
    rows = _as_stored(reader, stored.unembedding, None if table is None else table.width)
    pull: Tensor | None = None
    if table is not None and table.through is not None:
        pull = reader.linear(table.through, reader.d_model, rows.shape[1])[0]
    if reader.fold != "none" and stored.stack.final_norm is not None:
        pull = reader.norm(stored.stack.final_norm).gain[:, None] * _matrix(reader, pull)
        pull = without_mean(pull, 0) if reader.center else pull
    return rows, pull


def _matrix(reader: WeightReader, pull: Tensor | None) -> Tensor:
    return torch.eye(reader.d_model, dtype=reader.dtype, device=reader.device) if pull is None else pull


def _as_stored(reader: WeightReader, name: str, width: int | None) -> Tensor:
    """A table in the file's own dtype; on the CPU a mapped file is not copied."""
    shape = reader.checkpoint.store.infos[name].shape
    expected = (*shape[:-1], reader.d_model if width is None else width)
    return reader.checkpoint.take({name: expected})[name].reshape(expected[-2:]).to(reader.device)
