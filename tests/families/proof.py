"""Running a model with `transformers` and keeping what its attention saw, for comparison with our heads."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headspan.checkpoint import Checkpoint, StoredStack
from headspan.heads import Heads
from headspan.heads.logits import rotation


@dataclass
class Seen:
    """One layer's attention as the model ran it."""

    x: Tensor
    """What the query projection read: [batch, position, d_model]."""
    memory: Tensor
    """What the key projection read: the same, but in cross-attention."""
    output: Tensor
    """What the output projection wrote, bias included."""
    pattern: Tensor
    """[batch, head, position, position]."""
    module: nn.Module
    arguments: dict[str, Any]
    """What the attention module was called with: mask, position terms."""
    result: tuple[Any, ...]


def run(model: nn.Module, stack: str, inputs: dict[str, Tensor], checkpoint: Checkpoint) -> list[Seen]:
    """Run `model` and record every layer. Modules are found by the tensor names that our family description uses."""
    stored, modules = checkpoint.stack(stack), dict(model.named_modules())
    notes: list[dict[str, Any]] = [{} for _ in range(stored.stack.n_layers)]
    hooks = []
    for layer, note in enumerate(notes):
        query, key = (_module(modules, stored, role, layer) for role in ("Q", "K"))
        output = _module(modules, stored, "O", layer)
        attention = modules[_name(stored, "V", layer).rpartition(".")[0]]
        hooks += [
            output.register_forward_hook(_result_hook(note, "output")),
            attention.register_forward_pre_hook(_argument_hook(note), with_kwargs=True),
            attention.register_forward_hook(_result_hook(note, "result")),
        ]
        first = stored.stack.projections["Q"].latent
        entry = query if first is None else modules[_root(stored, first.linear.at(stored.stack.key(layer)).weight)]
        latent = stored.stack.projections["K"].latent
        memory = key if latent is None else modules[_root(stored, latent.linear.at(stored.stack.key(layer)).weight)]
        hooks += [
            entry.register_forward_pre_hook(_input_hook(note, "x")),
            memory.register_forward_pre_hook(_input_hook(note, "memory")),
        ]
        note["module"] = attention
    with torch.no_grad():
        model(**inputs, output_attentions=True)
    for hook in hooks:
        hook.remove()
    return [Seen(pattern=_pattern(note["result"]), **note) for note in notes]


def _root(stored: StoredStack, name: str) -> str:
    return stored.names.prefix + name.removesuffix(".weight")


def _name(stored: StoredStack, role: Any, layer: int) -> str:
    return _root(stored, stored.role_linear(role, layer).weight)


def _module(modules: dict[str, nn.Module], stored: StoredStack, role: Any, layer: int) -> nn.Module:
    return modules[_name(stored, role, layer)]


def _pattern(result: tuple[Any, ...]) -> Tensor:
    """The last thing with four axes that an attention module returns."""
    return [part for part in result if isinstance(part, Tensor) and part.ndim == 4][-1]


def _result_hook(note: dict[str, Any], key: str) -> Any:
    """Keeps what a module returns the first time; a hook that returned something would change the model."""

    def hook(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        note.setdefault(key, result)

    return hook


def _input_hook(note: dict[str, Any], key: str) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        note.setdefault(key, args[0])

    return hook


def _argument_hook(note: dict[str, Any]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        note.setdefault("arguments", {**bound, **bound.get("kwargs", {})})

    return hook


def our_pattern(seen: Seen, heads: Heads, layer: int) -> Tensor:
    """The attention pattern from our weights, norms and rotations, with the model's own mask and position terms."""
    stack, block = heads.stack, heads.layer(layer)
    q = _clipped(read(seen.x, block.W_Q[0], block.b_Q), heads) * latent_factor(seen, heads, "Q")
    k = _clipped(read(seen.memory, block.W_K[0], block.b_K), heads) * latent_factor(seen, heads, "K")
    query_norm, key_norm = heads.head_norm("Q", layer), heads.head_norm("K", layer)
    q, k = (q if query_norm is None else query_norm(q)), (k if key_norm is None else key_norm(k))
    if stack.rotary and not stack.apart:
        q, k = turned(q, heads, layer), turned(k, heads, layer)
    k = k.repeat_interleave(stack.n_heads // k.shape[1], dim=1)
    products = q @ k.mT + _turned_apart(seen, heads, layer)
    logits = with_position_terms(seen, products, stack.scale[layer], q, k, heads.checkpoint.family)
    if stack.softcap is not None:
        logits = stack.softcap * (logits / stack.softcap).tanh()
    logits = logits + mask(seen, logits, stack.causal, heads.checkpoint.family)
    sinks = heads.sinks(layer)
    if sinks is None:
        return logits.softmax(-1)
    column = sinks[None, :, None, None].expand(*logits.shape[:3], 1)
    return torch.cat([logits, column], dim=-1).softmax(-1)[..., :-1]


def _clipped(x: Tensor, heads: Heads) -> Tensor:
    clip = heads.stack.clip
    return x if clip is None else x.clamp(-clip, clip)


def latent_factor(seen: Seen, heads: Heads, role: Any) -> Tensor | float:
    """The model's own division of a latent by its size, token by token: [batch, 1, position, 1]."""
    latent = heads.stack.projections[role].latent
    if latent is None:
        return 1.0
    module = getattr(seen.module, latent.linear.weight.removesuffix(".weight").rpartition(".")[2])
    narrow = module(seen.x)[..., : latent.width]
    return (narrow.square().mean(-1) + latent.norm.eps).rsqrt()[:, None, :, None]


def _turned_apart(seen: Seen, heads: Heads, layer: int) -> Tensor | float:
    block = heads.rotary_parts(layer)
    if block is None:
        return 0.0
    q = read(seen.x, block.W_Q[0], block.b_Q) * latent_factor(seen, heads, "Q")
    k = read(seen.x, block.W_K[0], block.b_K)
    return turned(q, heads, layer) @ turned(k, heads, layer).mT


def turned(x: Tensor, heads: Heads, layer: int) -> Tensor:
    """Every position's vector turned by our rotation for it."""
    turns = torch.stack([rotation(heads.stack.rotary[layer], t, x.shape[-1]) for t in range(x.shape[-2])])
    return (x[..., None, :] @ turns.to(x.dtype)).squeeze(-2)


def with_position_terms(seen: Seen, products: Tensor, scale: float, q: Tensor, k: Tensor, family: str) -> Tensor:
    """Scaled logits with the model's own relative-position terms, which are no head's weight."""
    alibi = seen.arguments.get("alibi")
    if alibi is not None:
        bias = alibi.view(products.shape[0], products.shape[1], 1, -1)
        return (products + bias) * scale if family == "falcon" else products * scale + bias
    logits = products * scale
    if family == "deberta-v2":
        kinds = 1 + len(seen.module.pos_att_type)
        flat = [part.flatten(0, 1) for part in (q, k)]
        given = (seen.arguments.get("relative_pos"), seen.arguments["rel_embeddings"])
        return logits + seen.module.disentangled_attention_bias(*flat, *given, kinds).view_as(logits)
    if family == "t5":
        return logits + seen.result[1]
    bias = seen.arguments.get("position_bias")
    return logits if bias is None else logits + bias[..., -logits.shape[-1] :]


def mask(seen: Seen, logits: Tensor, causal: bool, family: str) -> Tensor:
    """The model's own mask, additive; plain causal where the model leaves it to the attention function."""
    own = getattr(seen.module, "bias", None)
    length = logits.shape[-1]
    if isinstance(own, Tensor) and own.dtype == torch.bool:
        return additive(own[..., :length, :length], logits)
    given = seen.arguments.get("attention_mask", seen.arguments.get("mask"))
    if given is not None and given.dtype == torch.bool:
        return additive(~given if family == "mpt" else given, logits)
    if given is not None:
        return given
    blocked = torch.full(logits.shape[-2:], -torch.inf, dtype=logits.dtype).triu(1)
    return blocked if causal else torch.zeros_like(blocked)


def additive(allowed: Tensor, logits: Tensor) -> Tensor:
    return torch.zeros_like(allowed, dtype=logits.dtype).masked_fill(~allowed, -torch.inf)


def our_output(seen: Seen, heads: Heads, layer: int) -> Tensor:
    """The attention output as a sum over our heads, given the model's own pattern."""
    stack, block = heads.stack, heads.layer(layer)
    v = _clipped(read(seen.memory, block.W_V[0], block.b_V), heads) * latent_factor(seen, heads, "V")
    v = v.repeat_interleave(stack.n_heads // stack.n_kv_heads, dim=1)
    total = torch.zeros_like(seen.output)
    for head in range(stack.n_heads):
        total += seen.pattern[:, head] @ v[:, head] @ block.W_O[0, head]
    return total if block.b_O is None else total + block.b_O[0]


def read(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    """x W + b for every head: [batch, head, position, d_head]."""
    out = torch.einsum("npd,hde->nhpe", x, W)
    return out if b is None else out + b[0][:, None, :]
