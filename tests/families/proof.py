"""Running a model with `transformers` and keeping what its attention saw, for comparison with our heads."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headspan.checkpoint import Checkpoint
from headspan.heads import HeadBlock


@dataclass
class Seen:
    """One layer's attention as the model ran it."""

    x: Tensor
    """What the query projection read: [batch, position, d_model]."""
    output: Tensor
    """What the output projection wrote, bias included."""
    pattern: Tensor
    """[batch, head, position, position]."""
    module: nn.Module
    arguments: dict[str, Any]
    """What the attention module was called with: mask, rotary embeddings."""


def run(model: nn.Module, checkpoint: Checkpoint, tokens: Tensor) -> list[Seen]:
    """Run `model` and record every layer. Modules are found by the tensor names that our family description uses."""
    stored, modules = checkpoint.stack(), dict(model.named_modules())
    notes: list[dict[str, Any]] = [{} for _ in range(stored.stack.n_layers)]
    hooks = []
    for layer, note in enumerate(notes):
        query = stored.names.prefix + stored.role_linear("Q", layer).weight.removesuffix(".weight")
        output = stored.names.prefix + stored.role_linear("O", layer).weight.removesuffix(".weight")
        attention = modules[query.rpartition(".")[0]]
        hooks += [
            modules[query].register_forward_pre_hook(lambda _, args, note=note: note.update(x=args[0])),
            modules[output].register_forward_hook(lambda _, args, result, note=note: note.update(output=result)),
            attention.register_forward_pre_hook(_argument_hook(note), with_kwargs=True),
        ]
        note["module"] = attention
    with torch.no_grad():
        attentions = model(tokens, output_attentions=True).attentions
    for hook in hooks:
        hook.remove()
    return [Seen(pattern=pattern, **note) for pattern, note in zip(attentions, notes, strict=True)]


def _argument_hook(note: dict[str, Any]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        note["arguments"] = {**bound, **bound.get("kwargs", {})}

    return hook


def our_pattern(seen: Seen, block: HeadBlock, checkpoint: Checkpoint, layer: int) -> Tensor:
    """The attention pattern from our W_Q, W_K and biases, with the model's own rotary embedding and mask."""
    stack = checkpoint.stack().stack
    group = stack.n_heads // stack.n_kv_heads
    q = read(seen.x, block.W_Q[0], block.b_Q)
    k = read(seen.x, block.W_K[0], block.b_K).repeat_interleave(group, dim=1)
    if stack.positions == "rotary":
        cos, sin = seen.arguments["position_embeddings"]
        q, k = sys.modules[type(seen.module).__module__].apply_rotary_pos_emb(q, k, cos, sin)
    logits = q @ k.transpose(-1, -2) * stack.scale[layer]
    return (logits + mask(seen, logits, stack.causal)).softmax(-1)


def mask(seen: Seen, logits: Tensor, causal: bool) -> Tensor:
    """The model's own mask, additive; plain causal where the model leaves it to the attention function."""
    own = getattr(seen.module, "bias", None)
    length = logits.shape[-1]
    if own is not None and own.dtype == torch.bool:
        return torch.zeros_like(own[..., :length, :length], dtype=logits.dtype).masked_fill(
            ~own[..., :length, :length], -torch.inf
        )
    given = seen.arguments.get("attention_mask")
    if given is not None:
        return given
    blocked = torch.full((length, length), -torch.inf, dtype=logits.dtype).triu(1)
    return blocked if causal else torch.zeros_like(blocked)


def our_output(seen: Seen, block: HeadBlock, checkpoint: Checkpoint) -> Tensor:
    """The attention output as a sum over our heads, given the model's own pattern."""
    stack = checkpoint.stack().stack
    v = read(seen.x, block.W_V[0], block.b_V).repeat_interleave(stack.n_heads // stack.n_kv_heads, dim=1)
    total = torch.zeros_like(seen.output)
    for head in range(stack.n_heads):
        total += seen.pattern[:, head] @ v[:, head] @ block.W_O[0, head]
    return total if block.b_O is None else total + block.b_O[0]


def read(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    """x W + b for every head: [batch, head, position, d_head]."""
    out = torch.einsum("npd,hde->nhpe", x, W)
    return out if b is None else out + b[0][:, None, :]
