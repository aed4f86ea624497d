"""One attention layer applied to a stream: its norms, positions, mask, cap and sinks, with any weights of its shape.

    u = norm(x),  out = sum_h softmax(beta scale q_h k_h^T + mask) u W_V W_O,  x' = out  or  x' = x + out

With a norm after the attention (BERT) u = x, and x' = norm(out) or norm(x + out). `beta` is the inverse temperature. As
many streams as there are settings go through a layer together, so that its weights are read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import ROLES, Role
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.heads import Heads
from headspan.heads.logits import relative_rotation
from headspan.heads.norms import HeadNormWeights, NormWeights, without_mean

Streams = Float[Tensor, "skip beta sequence position d_model"]


@dataclass(frozen=True)
class Layer:
    """A layer's numbers: weights [head, ...] of every role, biases where they are kept, and what surrounds them."""

    weights: Mapping[Role, Tensor]
    biases: Mapping[Role, Tensor | None]
    norm: NormWeights | None
    after: bool
    write_norm: NormWeights | None
    head_norms: Mapping[Role, HeadNormWeights | None]
    turns: Tensor | None
    """The rotation of every position, [position, d_head, d_head]; None without rotary positions."""
    sinks: Tensor | None
    scale: float
    softcap: float | None
    clip: float | None
    causal: bool

    def randomized(self, generator: torch.Generator) -> Layer:
        """The same layer with Gaussian weights, each head's matrix with the rms of the learned one; norms are kept."""
        drawn: dict[Role, Tensor] = {}
        for role, W in self.weights.items():
            rms = W.square().mean((-2, -1), keepdim=True).sqrt()
            drawn[role] = torch.randn(W.shape, generator=generator, dtype=W.dtype).to(W.device) * rms
        return replace(self, weights=drawn)


def read_layer(heads: Heads, layer: int, length: int, biases: bool) -> Layer:
    """The layer as the checkpoint has it."""
    stack, block = heads.stack, heads.layer(layer)
    turns = None
    if stack.rotary:
        parts = [relative_rotation(heads, place, [layer]) for place in range(length)]
        plain = torch.eye(heads.d_head, dtype=heads.dtype, device=heads.device)
        turns = torch.stack([plain if part is None else part[0, 0] for part in parts])
    norm = None if layer in stack.norm.absent else heads.norm(layer)
    write_norm = None if stack.write_norm is None else heads.reader.norm(stack.write_norm, layer)
    if stack.norm_place == "after" and stack.write_norm is not None:
        norm = None  # one and the same norm: of what is written, not of the sum
    return Layer(
        weights={role: block.weight(role)[0] for role in ROLES},
        biases={role: _bias(block.bias(role), biases) for role in ROLES},
        norm=_without_bias(norm, biases),
        after=stack.norm_place == "after",
        write_norm=_without_bias(write_norm, biases),
        head_norms={role: heads.head_norm(role, layer) for role in ("Q", "K")},
        turns=turns,
        sinks=heads.sinks(layer),
        scale=stack.scale[layer],
        softcap=stack.softcap,
        clip=stack.clip,
        causal=stack.causal,
    )


def obstacle(heads: Heads) -> str | None:
    """Why a stack's attention cannot be applied by itself, in one line; None where it can."""
    stack = heads.stack
    if stack.apart or any(projection.latent is not None for projection in stack.projections.values()):
        return "latent attention norms a narrow space between the stream and its heads"
    if stack.positions in ("alibi", "relative") or stack.position_terms:
        return f"terms of its logits for {stack.positions} positions are not part of any head's weights"
    return None


def checked(heads: Heads, length: int = 0) -> Heads:
    """The heads as stored, pass by pass; refused where their attention cannot be applied to so many tokens."""
    reason = obstacle(heads)
    if reason is not None:
        raise UnsupportedModel(f"mixing does not apply to '{heads.checkpoint.source}': {reason}")
    window = heads.checkpoint.config.get("sliding_window")
    if isinstance(window, int) and 0 < window < length:
        raise ArgumentError(
            f"sequences of {length} tokens exceed the model's sliding window of {window}; ask for shorter ones"
        )
    return heads.refolded("none").unrolled()


def applied(
    layer: Layer, x: Float[Tensor, "#skip #beta sequence position d_model"], betas: Float[Tensor, " beta"]
) -> Streams:
    """What every stream becomes; the first is replaced by what the layer writes, to the second it is added.

    Streams that are still one and the same have a single `skip` and `beta`.
    """
    u = x if layer.after or layer.norm is None else normed(layer.norm, x)
    q, k, v = (_projected(layer, role, u) for role in ("Q", "K", "V"))
    logits = layer.scale * betas[None, :, None, None, None, None] * (q @ _per_query(k, q).mT)
    mixed = _pattern(layer, logits) @ _per_query(v, q)
    out = torch.einsum("...hpv,hvd->...pd", mixed, layer.weights["O"])
    if layer.biases["O"] is not None:
        out = out + layer.biases["O"]
    if layer.write_norm is not None:
        out = normed(layer.write_norm, out)
    result = torch.stack((out[0], x[-1] + out[-1]))
    return normed(layer.norm, result) if layer.after and layer.norm is not None else result


def normed(norm: NormWeights, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
    """`x` behind a LayerNorm or RMSNorm."""
    x = without_mean(x) if norm.kind == "layernorm" else x
    x = x * (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt() * norm.gain
    return x if norm.bias is None else x + norm.bias


def _projected(layer: Layer, role: Role, u: Tensor) -> Tensor:
    """Queries, keys or values [..., head, position, width], normed and turned to their positions."""
    x = torch.einsum("...pd,hde->...hpe", u, layer.weights[role])
    bias = layer.biases[role]
    x = x if bias is None else x + bias[:, None, :]
    x = x if layer.clip is None else x.clamp(-layer.clip, layer.clip)
    norm = layer.head_norms.get(role)
    x = x if norm is None else norm(x)
    return x if layer.turns is None or role == "V" else torch.einsum("...hpd,pde->...hpe", x, layer.turns)


def _per_query(kv: Tensor, q: Tensor) -> Tensor:
    return kv.repeat_interleave(q.shape[-3] // kv.shape[-3], dim=-3)


def _pattern(layer: Layer, logits: Tensor) -> Tensor:
    n = logits.shape[-1]
    if layer.softcap is not None:
        logits = layer.softcap * (logits / layer.softcap).tanh()
    if layer.causal:
        later = torch.ones(n, n, dtype=torch.bool, device=logits.device).triu(1)
        logits = logits.masked_fill(later, -torch.inf)
    if layer.sinks is None:
        return logits.softmax(-1)
    column = layer.sinks.to(logits)[:, None, None].expand(*logits.shape[:-1], 1)
    return torch.cat((logits, column), dim=-1).softmax(-1)[..., :-1]


def _bias(bias: Tensor | None, kept: bool) -> Tensor | None:
    return bias[0] if kept and bias is not None else None


def _without_bias(norm: NormWeights | None, kept: bool) -> NormWeights | None:
    if norm is None or kept:
        return norm
    return NormWeights(norm.kind, norm.gain, None, norm.eps)
