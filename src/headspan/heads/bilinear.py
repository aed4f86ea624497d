r"""The bilinear form of a head's logits, W_Q N_Q R_delta N_K^T W_K^T, as two tall factors.

R_delta is the rotation between positions (`rotary`). N is what a norm of queries or keys does to every token alike: it
removes the mean if it is a LayerNorm, and multiplies by the gain. What such a norm does to each token by itself, the
division by its size, is a positive factor per token and stays outside; so does a bias. Without these N and R are 1.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.heads.block import HeadBlock
from headspan.heads.folding import centred
from headspan.heads.head_norm import HeadNormWeights
from headspan.heads.heads import Heads
from headspan.heads.rotary import relative_rotation


def bilinear_factors(
    heads: Heads, block: HeadBlock, delta: int = 0
) -> tuple[Float[Tensor, "layer head d_model d_head"], Float[Tensor, "layer kv_head d_model d_head"]]:
    """A and B with W_QK = A B^T for every head of a block; B belongs to kv heads."""
    queries = _normed(block.W_Q, [heads.head_norm("Q", layer) for layer in block.layers])
    keys = _normed(block.W_K, [heads.head_norm("K", layer) for layer in block.layers])
    R = relative_rotation(heads, delta, block.layers)
    return (queries if R is None else queries @ R), keys


def _normed(weight: Tensor, norms: list[HeadNormWeights | None]) -> Tensor:
    known = [norm for norm in norms if norm is not None]
    if not known:
        return weight
    if known[0].kind == "layernorm":
        weight = centred(weight)
    return weight * torch.stack([norm.gain for norm in known])[:, :, None, :]
