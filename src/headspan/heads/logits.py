"""What a layer's logits are made of: queries and keys, the rotation between positions, the bilinear form of a head.

q = norm_Q(x W_Q + b_Q) for every head, k likewise for every kv head; the norms are those that some families put on
queries and keys. A logit is scale * q R_delta k^T, with the layer's scale; masks, sinks, caps and position terms that
are added to it stand outside.

A rotary model turns query and key by an angle that grows with their position, so R_delta belongs to delta = (position
of the query) - (position of the key). It is orthogonal: subspaces of W_Q and W_K do not depend on it, products through
W_Q W_K^T do.

The bilinear form of a head's logits is W_Q N_Q R_delta N_K^T W_K^T. N is what a norm of queries or keys does to every
token alike: it removes the mean if it is a LayerNorm, and multiplies by the gain. What such a norm does to each token
by itself, the division by its size, is a positive factor per token and stays outside; so does a bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families import Rotary
from headspan.errors import ArgumentError, ShapeError, UnsupportedModel
from headspan.heads.block import HeadBlock
from headspan.heads.heads import Heads
from headspan.heads.norms import HeadNormWeights, without_mean

KNOWN = ("default", "linear", "llama3")


def relative_rotation(
    heads: Heads, delta: int, layers: Sequence[int] | None = None
) -> Float[Tensor, "layer 1 d_head d_head"] | None:
    """R_delta for row vectors, layer by layer; None where it is the identity.

    That is at delta 0, in a model without rotary positions, and in latent attention, whose W_Q and W_K hold none of
    the features that positions turn.

    Raises
    ------
    UnsupportedModel
        For a rotary scheme whose frequencies headspan does not know, if delta is not 0.
    """
    records = heads.stack.rotary
    if not records or delta == 0 or heads.stack.apart:
        return None
    chosen = [records[layer] for layer in (heads.layers if layers is None else layers)]
    turns = {record: rotation(record, delta, heads.d_head).to(heads.device, heads.dtype) for record in set(chosen)}
    return torch.stack([turns[record] for record in chosen])[:, None]


def check_delta(heads: Heads, delta: int) -> None:
    """Refuse an offset where nothing depends on it."""
    if delta and not heads.stack.rotary:
        raise ArgumentError(
            f"delta={delta} needs rotary positions, which this model does not have: its W_Q W_K^T is the same at every "
            "offset; leave it out"
        )


def rotation(record: Rotary, delta: int, d_head: int) -> Float[Tensor, "d_head d_head"]:
    """R_delta of one layer in float64: x R_delta is x turned by `delta` positions."""
    if record.kind not in KNOWN:
        raise UnsupportedModel(
            f"rotary frequencies of kind {record.kind!r} depend on the sequence's length or on fitted factors; "
            "only delta = 0 is defined for this model"
        )
    half = (record.dims + 1) // 2
    pair = torch.arange(half)
    frequency = record.theta ** (-2 * pair.double() / max(record.dims, 1)) / record.factor
    if record.stretch is not None:
        frequency /= torch.tensor([record.stretch.divisor(float(each)) for each in frequency])
    angle = delta * frequency
    first, second = (2 * pair, 2 * pair + 1) if record.interleaved else (pair, pair + half)
    R = torch.eye(d_head, dtype=torch.float64)
    R[first, first] = R[second, second] = angle.cos()
    R[first, second], R[second, first] = angle.sin(), -angle.sin()
    return R


def bilinear_factors(
    heads: Heads, block: HeadBlock, delta: int = 0
) -> tuple[Float[Tensor, "layer head d_model d_head"], Float[Tensor, "layer kv_head d_model d_head"]]:
    """A and B with W_QK = A B^T for every head of a block; B belongs to kv heads."""
    queries = _apply_norms(block.W_Q, [heads.head_norm("Q", layer) for layer in block.layers])
    keys = _apply_norms(block.W_K, [heads.head_norm("K", layer) for layer in block.layers])
    R = relative_rotation(heads, delta, block.layers)
    return (queries if R is None else queries @ R), keys


def _apply_norms(weight: Tensor, norms: list[HeadNormWeights | None]) -> Tensor:
    known = [norm for norm in norms if norm is not None]
    if not known:
        return weight
    if known[0].kind == "layernorm":
        weight = without_mean(weight)
    return weight * torch.stack([norm.gain for norm in known])[:, :, None, :]


def projection_obstacle(heads: Heads) -> str | None:
    """Why queries and keys are not a map of what the layer reads, in one line; None where they are."""
    if heads.stack.apart:
        return "latent attention keeps the part of queries and keys that positions turn apart"
    if heads.stack.reads_memory:
        return "in cross-attention queries and keys read different streams"
    return None


def queries_or_keys(
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
