r"""The rotation between a query and a key that stand some positions apart.

A rotary model turns query and key by an angle that grows with their position, so a logit is q R_delta k^T with
delta = (position of the query) - (position of the key), and the head's bilinear form is W_Q R_delta W_K^T. R_delta is
orthogonal: subspaces of W_Q and W_K do not depend on it, products through W_Q W_K^T do.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import UnsupportedModel
from headspan.heads.heads import Heads

KNOWN = ("default", "linear")


def relative_rotation(heads: Heads, delta: int) -> Float[Tensor, "d_head d_head"] | None:
    """R_delta for row vectors; None where it is the identity (delta 0, or a model without rotary positions).

    Raises
    ------
    UnsupportedModel
        For a rotary scheme whose frequencies headspan does not know, if delta is not 0.
    """
    rotary = heads.stack.rotary
    if rotary is None or delta == 0:
        return None
    if rotary.kind not in KNOWN:
        raise UnsupportedModel(
            f"rotary frequencies of kind {rotary.kind!r} depend on the sequence's length or on fitted factors; "
            "only delta = 0 is defined for this model"
        )
    half = (rotary.dims + 1) // 2
    pair = torch.arange(half, dtype=torch.float64, device=heads.device)
    angle = delta * rotary.theta ** (-2 * pair / rotary.dims) / rotary.factor
    R = torch.eye(heads.d_head, dtype=torch.float64, device=heads.device)
    first, second = pair.long(), pair.long() + half
    R[first, first] = R[second, second] = angle.cos()
    R[first, second], R[second, first] = angle.sin(), -angle.sin()
    return R.to(heads.dtype)
