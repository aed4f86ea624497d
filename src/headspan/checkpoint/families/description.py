"""How a family of models stores its attention: the vocabulary in which every family is described.

A family is a function from a config to `Stack` descriptions. A stack says which tensor holds each role, which of its
rows belong to which head, what norm stands before the attention, and where the embeddings are. Descriptions hold names
and numbers only; reading is done elsewhere, the same way for all families. Names are relative to the model's root:
whatever a checkpoint puts before them (`transformer.`, `model.`, `bert.`) is found when it is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headspan.checkpoint.families.logits import Rotary
from headspan.checkpoint.families.parts import MLP, Entry, HeadNorm, Norm, Projection, Shape, Table
from headspan.dims import Positions, Role

StackName = Literal["decoder", "encoder", "cross", "text", "vision"]


@dataclass(frozen=True, kw_only=True)
class Stack(Shape):
    """One column of attention layers and everything around it that headspan can hand out."""

    name: StackName
    causal: bool
    layer_keys: tuple[str, ...] = ()
    """What stands for `{layer}` in names, layer by layer; the layer's number where this is empty."""
    repeats: int = 1
    """How often the model runs through these layers (ALBERT shares one layer among twelve)."""
    passes: tuple[int, ...] = ()
    """The layer that each pass runs through, in order, where layers are shared; empty where each runs once."""

    positions: Positions
    rotary: tuple[Rotary, ...] = ()
    """One record per layer; empty for a model without rotary positions."""
    scale: tuple[float, ...]
    """Factor on the logits, layer by layer."""
    softcap: float | None = None
    """Logits are squashed to `softcap * tanh(logits / softcap)`."""
    clip: float | None = None
    """Queries, keys and values are clipped to [-clip, clip]."""

    attention: str
    """Template of the prefix under which a layer keeps its attention tensors; each of them is claimed by a role."""
    projections: Mapping[Role, Projection]
    apart: Mapping[Role, Projection] = field(default_factory=dict)
    """Latent attention keeps the features that positions turn in matrices of their own, for Q and K."""
    query_norm: HeadNorm | None = None
    key_norm: HeadNorm | None = None
    sinks: str | None = None
    """One logit per head that takes part in the softmax and is then dropped, so that a pattern's row sums to less."""
    position_terms: tuple[str, ...] = ()
    """What is stored under `attention` for relative positions; their part of the logits is not a head's weight."""
    buffers: tuple[str, ...] = ()
    """What is stored under `attention` but is no weight (causal masks, rotary frequencies)."""

    norm: Norm
    norm_place: Literal["before", "after"]
    """Whether the attention reads the normed stream, or the norm follows it."""
    write_norm: Norm | None = None
    """A norm of what the attention writes, before it is added to the stream."""
    reads_memory: bool = False
    """Cross-attention: keys and values read another stack's output, and so nothing that this stack writes."""
    memory_norm: Norm | None = None
    """The norm behind which keys and values read that output."""

    mlp: MLP | None
    experts: bool = False
    """The MLP is a mixture of experts, which headspan does not hand out."""
    parallel: bool = False
    """Attention and MLP of a layer read the same stream, so that neither reads what the other writes there."""
    tokens: Table | None
    position_table: Table | None = None
    unembedding: Table | None = None
    tied: bool = False
    final_norm: Norm | None = None
    entry: Entry | None = None
    """What is done to token plus position before the first layer, where that is more than the layer's own norm."""

    def key(self, layer: int) -> str:
        """What stands for `{layer}` in the names of a layer."""
        return self.layer_keys[layer] if self.layer_keys else str(layer)

    def peculiarities(self) -> Iterator[tuple[str, str]]:
        """What sets the stack apart from plain attention: a word or two for a list of families, or none, and a note."""
        if self.reads_memory:
            yield "cross-attention", "keys and values read the encoder's output, not this stack's stream"
        if self.apart:
            turned = f"the {self.apart['Q'].rows.d_head} features per head that positions turn"
            yield "", f"latent attention: {turned} are kept apart from W_Q and W_K"
        if self.query_norm is not None:
            yield "normed queries and keys", "queries and keys are normed before they meet"
        if self.softcap is not None:
            yield "capped logits", f"logits are capped at {self.softcap:g}"
        if self.clip is not None:
            yield "", f"queries, keys and values are clipped at {self.clip:g}"
        if self.sinks is not None:
            yield "sinks", "attention sinks: a row of a pattern sums to less than 1"
        if self.repeats > 1:
            counted = "each is counted once, and the wiring is that of the passes"
            yield "shared layers", f"the model runs through these layers {self.repeats} times; {counted}"
        if self.write_norm is not None:
            yield "", "what the attention writes is normed before it is added to the stream"
        if self.parallel:
            yield "parallel blocks", "attention and MLP of a layer read the same stream, side by side"
        if self.experts:
            yield "experts", "the MLP is a mixture of experts and is not handed out"
