r"""The rotation between a query and a key that stand some positions apart, and the bilinear form it belongs to.

A rotary model turns query and key by an angle that grows with their position, so a logit is q R_delta k^T with
delta = (position of the query) - (position of the key), and the head's bilinear form is W_Q R_delta W_K^T. R_delta is
orthogonal: subspaces of W_Q and W_K do not depend on it, products through W_Q W_K^T do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families import Rotary
from headspan.errors import UnsupportedModel
from headspan.heads.heads import Heads

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
