"""What goes into the first layer: the stream of a running model on tokens, the model's tables, or random vectors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, MissingTensor, UnsupportedModel
from headspan.heads import Heads
from headspan.heads.embeddings import first_read
from headspan.runtime import RunnableModel, forward
from headspan.runtime.buffers import random_tokens, sampled_tokens
from headspan.runtime.untrained import untrained_twin

AT_ONCE = 8
"""Sequences per run of the model."""


@dataclass(frozen=True)
class Start:
    """The stream before the first layer, where it comes from in words, and the streams of runs where there were any."""

    stream: Float[Tensor, "sequence position d_model"]
    source: str
    run: Float[Tensor, "depth sequence position d_model"] | None = None
    """The stream of the whole model at every depth; behind the final norm at the last."""
    twin: Float[Tensor, "depth sequence position d_model"] | None = None
    """The same of its untrained twin."""


def starting_stream(
    heads: Heads, running: RunnableModel | str, text: str | None, sequences: int, length: int, seed: int
) -> Start:
    """From a run of the model where it can be run, else from its tables, else random vectors."""
    if isinstance(running, RunnableModel):
        tokens, words = sampled_tokens(running, text, sequences, length, seed)
        run, twin = (_states(model, tokens) for model in (running, untrained_twin(running, seed)))
        source = f"{words}: {len(tokens)} sequences of {tokens.shape[1]} tokens"
        return Start(run[0], source, run, twin)
    if text is not None:
        raise UnsupportedModel(f"a text needs a model that can be run, and this one cannot: {running}")
    count = f"{sequences} sequences of {length} tokens"
    try:
        return Start(_from_tables(heads, sequences, length, seed), f"random tokens: {count} ({running})")
    except MissingTensor:
        shape = (sequences, length, heads.d_model)
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return Start(drawn, f"random vectors in place of tokens: {count} ({running})")


def _states(model: RunnableModel, tokens: Tensor) -> Float[Tensor, "depth sequence position d_model"]:
    parts = []
    for start in range(0, len(tokens), AT_ONCE):
        found = forward(model, tokens[start : start + AT_ONCE], scores=False)
        ends = found.final[:, None] if found.final.shape[-1] == found.states.shape[-1] else found.states[:, -1:]
        parts.append(torch.cat((found.states, ends), dim=1).detach())
    return torch.cat(parts).movedim(1, 0)


def _from_tables(heads: Heads, sequences: int, length: int, seed: int) -> Tensor:
    W_E = heads.table("W_E")
    tokens = W_E[random_tokens(len(W_E), sequences, length, seed)].double()
    if heads.stack.position_table is None:
        places = tokens.new_zeros(length, heads.d_model)
    else:
        table = heads.table("W_pos")
        if len(table) < length:
            raise ArgumentError(f"sequences of {length} tokens exceed the {len(table)} positions; ask for shorter ones")
        places = table[:length].double()
    if heads.stack.entry is None:
        return tokens + places
    return torch.stack(first_read(heads).split(tokens, places.expand_as(tokens))).sum(0)
