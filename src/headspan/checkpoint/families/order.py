"""What of a model can write to what: the order in which its parts read and write the stream.

The stream carries everything that was written before. A part reads at one step of a forward pass and writes at the
same step, and it can compose with every part that reads at a later one:

1. The tables are there before layer 0, the logits read after the last layer.
2. In sequential blocks the attention of layer l comes first and the MLP of layer l reads what it wrote.
3. In parallel blocks (GPT-J, NeoX) both read the same stream: neither reads what the other writes in its layer.
4. Cross-attention stands between the attention and the MLP of its layer, and its keys and values read another stack's
   output: nothing in this stack's stream reaches them.

A norm after a block (BERT) rescales the stream and changes nothing of this order.
"""

from __future__ import annotations

from typing import Literal

from headspan.checkpoint.families.description import Stack

Part = Literal["W_E", "W_pos", "Q", "K", "V", "O", "MLP", "logits"]
"""What writes the stream: W_E, W_pos, O, MLP; what reads it: Q, K, V, MLP, logits."""
STEPS = 3
"""Of a layer: attention, cross-attention, MLP."""


def step(stack: Stack, part: Part, layer: int = 0) -> int | None:
    """When a part reads or writes the stack's stream; None where it is another stream that it reads."""
    if part in ("W_E", "W_pos"):
        return -1
    if part == "logits":
        return STEPS * max(stack.n_layers, len(stack.passes))
    if part == "MLP":
        return STEPS * layer + (0 if stack.parallel else STEPS - 1)
    if stack.reads_memory:
        return STEPS * layer + 1 if part in ("Q", "O") else None
    return STEPS * layer


def can_compose(stack: Stack, src: Part, src_layer: int, dst: Part, dst_layer: int) -> bool:
    """Whether what one part writes reaches another that reads it."""
    written, read = step(stack, src, src_layer), step(stack, dst, dst_layer)
    return written is not None and read is not None and written < read
