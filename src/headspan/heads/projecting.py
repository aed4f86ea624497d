r"""From what a layer reads to its queries and keys, as they are before positions turn them.

q = norm_Q(x W_Q + b_Q) for every head, k likewise for every kv head; the norms are those that some families put on
queries and keys. A logit is scale * q R_delta k^T, with R_delta of `rotary` and the layer's scale; masks, sinks, caps
and position terms that are added to it stand outside.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError, UnsupportedModel
from headspan.heads.heads import Heads


def projection_obstacle(heads: Heads) -> str | None:
    """Why queries and keys are not a map of what the layer reads, in one line; None where they are."""
    if heads.stack.apart:
        return "latent attention keeps the part of queries and keys that positions turn apart"
    if heads.stack.reads_memory:
        return "in cross-attention queries and keys read different streams"
    return None


def projected(
    heads: Heads, role: Literal["Q", "K"], layer: int, reads: Float[Tensor, "*batch position d_model"]
) -> Float[Tensor, "*batch head position d_head"]:
    """Queries (role Q, one per head) or keys (role K, one per kv head) of a layer.

    Parameters
    ----------
    heads
        In any fold state; `reads` must be in the same one (as stored: what comes out of the norm).
    role, layer
        Which projection.
    reads
        What the layer's attention reads, behind its norm.
    """
    obstacle = projection_obstacle(heads)
    if obstacle is not None:
        raise UnsupportedModel(f"queries and keys cannot be computed from the stream: {obstacle}")
    if reads.shape[-1] != heads.d_model:
        raise ShapeError(f"reads need d_model = {heads.d_model} features, found shape {tuple(reads.shape)}")
    block = heads.layer(layer, (role,))
    weight, bias = block.weight(role)[0], block.bias(role)
    x = torch.einsum("...pd,hde->...hpe", reads.to(weight), weight)
    if bias is not None:
        x = x + bias[0, :, None, :]
    if heads.stack.clip is not None:
        x = x.clamp(-heads.stack.clip, heads.stack.clip)
    norm = heads.head_norm(role, layer)
    return x if norm is None else norm(x)
