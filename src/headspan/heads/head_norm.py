"""The norm of queries and keys that some families put before positions turn them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families import HeadNorm, NormKind
from headspan.heads.reader import WeightReader


@dataclass(frozen=True)
class HeadNormWeights:
    """Gain and bias of every head; `joint` if one norm runs over all heads' features together."""

    kind: NormKind
    gain: Float[Tensor, "head d_head"]
    bias: Float[Tensor, "head d_head"] | None
    eps: float
    joint: bool

    def __call__(self, x: Float[Tensor, "*batch head position d_head"]) -> Float[Tensor, "*batch head position d_head"]:
        """Queries or keys as the model goes on with them."""
        axes = (-3, -1) if self.joint else (-1,)
        if self.kind == "layernorm":
            x = x - x.mean(axes, keepdim=True)
        x = x * (x.square().mean(axes, keepdim=True) + self.eps).rsqrt() * self.gain[:, None, :]
        return x if self.bias is None else x + self.bias[:, None, :]


def read_head_norm(reader: WeightReader, role: Literal["Q", "K"], layer: int) -> HeadNormWeights | None:
    """The norm of a layer's queries or keys; None in most families."""
    stack = reader.stored.stack
    norm = stack.query_norm if role == "Q" else stack.key_norm
    if norm is None:
        return None
    rows = stack.projections[role].rows
    gain = _per_head(reader, norm, norm.weight, layer, rows.n_heads, rows.d_head)
    has_bias = norm.bias is not None and reader.stored.names.find(norm.bias.format(layer=stack.key(layer), head=0))
    bias = _per_head(reader, norm, norm.bias, layer, rows.n_heads, rows.d_head) if norm.bias and has_bias else None
    return HeadNormWeights(norm.kind, gain + norm.offset, bias, norm.eps, joint=norm.span == "all heads")


def _per_head(
    reader: WeightReader, norm: HeadNorm, template: str, layer: int, n_heads: int, d_head: int
) -> Float[Tensor, "head d_head"]:
    if "{head}" in template:
        names = (template.replace("{head}", str(head)) for head in range(n_heads))
        return torch.stack([reader.vector(name, layer, (d_head,)) for name in names])
    if norm.span == "head":
        return reader.vector(template, layer, (d_head,)).expand(n_heads, d_head)
    shape = (n_heads, d_head) if norm.span == "each head" else (n_heads * d_head,)
    return reader.vector(template, layer, shape).reshape(n_heads, d_head)
