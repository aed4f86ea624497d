"""What every layer's attention reads on sampled sequences: from a run of the model, or for layer 0 from its tables.

Sequences are windows of a text, or tokens drawn uniformly from the vocabulary. A model that cannot be run still shows
what layer 0 reads, since that is made of the tables alone (`heads.entry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import ArgumentError, MissingTensor, UnsupportedModel
from headspan.heads import Heads
from headspan.heads.embeddings import first_read
from headspan.heads.logits import projection_obstacle
from headspan.runtime import RunnableModel, forward
from headspan.runtime.budget import FEWER, require_memory
from headspan.runtime.buffers import random_tokens, sampled_tokens

AT_ONCE = 8
"""Sequences per run of the model."""


@dataclass(frozen=True)
class Reads:
    """What layers read: [sequence, position, d_model] each, behind the norm, and how flat their attention was."""

    layers: Mapping[int, Float[Tensor, "sequence position d_model"]]
    entropy: Mapping[int, Float[Tensor, "sequence head position"]]
    """Entropy of every row of the attention pattern in nats, where the model was run; empty otherwise."""
    source: str
    """In words: where tokens and states come from."""


def sampled_reads(
    heads: Heads, running: RunnableModel | str, text: str | None, sequences: int, length: int, seed: int
) -> Reads:
    """Reads of all layers from a run of the model where it can be run, else of layer 0 from its tables."""
    obstacle = projection_obstacle(heads)
    if obstacle is not None:
        raise UnsupportedModel(f"logits cannot be predicted: {obstacle}")
    if isinstance(running, RunnableModel):
        tokens, words = sampled_tokens(running, text, sequences, length, seed)
        return _run(running, heads, tokens, words)
    if text is not None:
        raise UnsupportedModel(f"a text needs a model that can be run, and this one cannot: {running}")
    return _from_tables(heads, sequences, length, seed, running)


def _run(model: RunnableModel, heads: Heads, tokens: Int[Tensor, "sequence position"], words: str) -> Reads:
    """What every layer read in a run, a few sequences at a time."""
    kept = tokens.numel() * len(heads.layers) * (heads.d_model * model.module.dtype.itemsize + 8 * heads.n_heads)
    require_memory(2 * kept, f"what {len(heads.layers)} layers read", FEWER)
    reads: dict[int, list[Tensor]] = {layer: [] for layer in heads.layers}
    entropy: dict[int, list[Tensor]] = {layer: [] for layer in heads.layers}
    for start in range(0, len(tokens), AT_ONCE):
        found = forward(model, tokens[start : start + AT_ONCE])
        # A layer that runs several times (ALBERT) is taken at its first.
        firsts = {run.layer: (place, run) for place, run in reversed(list(enumerate(found.runs)))}
        for place, run in firsts.values():
            if run.layer in reads:
                reads[run.layer].append(run.read)
                entropy[run.layer].append(_row_entropy(found.log_pattern(place)))
    count = f"{len(tokens)} sequences of {tokens.shape[1]} tokens"
    return Reads(
        {layer: torch.cat(parts) for layer, parts in reads.items()},
        {layer: torch.cat(parts) for layer, parts in entropy.items()},
        f"the stream of the running model on {words}, {count}",
    )


def _row_entropy(logs: Float[Tensor, "sequence head query key"]) -> Float[Tensor, "sequence head query"]:
    """Entropy of rows given as logarithms, normalized where a sink took a part of them."""
    logs = logs.double()
    logs = logs - logs.logsumexp(-1, keepdim=True)
    return -(logs.exp() * logs.masked_fill(logs == -torch.inf, 0.0)).sum(-1)


def _from_tables(heads: Heads, sequences: int, length: int, seed: int, reason: str) -> Reads:
    obstacle = _table_obstacle(heads)
    if obstacle is not None:
        raise UnsupportedModel(f"the model is not run ({reason}), nor can layer 0 be read from tables: {obstacle}")
    W_E = heads.table("W_E")
    tokens = W_E[random_tokens(len(W_E), sequences, length, seed)].double()
    places = (
        torch.zeros_like(tokens) if heads.stack.position_table is None else _places(heads, length).expand_as(tokens)
    )
    read = sum(first_read(heads).split(tokens, places))
    source = f"tables alone, layer 0: {sequences} sequences of {length} random tokens ({reason})"
    return Reads({0: torch.as_tensor(read)}, {}, source)


def _places(heads: Heads, length: int) -> Float[Tensor, "position d_model"]:
    table = heads.table("W_pos")
    if len(table) < length:
        raise ArgumentError(f"sequences of {length} tokens exceed the {len(table)} positions; ask for shorter ones")
    return table[:length].double()


def _table_obstacle(heads: Heads) -> str | None:
    if 0 not in heads.layers:
        return "layer 0 is not among these layers"
    try:
        first_read(heads)
        for part in ("W_E", *(() if heads.stack.position_table is None else ("W_pos",))):
            if part not in heads.reader.stored.parts:
                return f"{part} is not in this checkpoint"
    except MissingTensor as problem:
        return str(problem)
    return None
