r"""Folding a norm into the weights that read its output, and centring.

A LayerNorm is x -> g * (x - mean x) / sd x + b. What follows it reads (g * z + b) W + c = z (diag(g) W) + (b W + c), z
being the plain normalised stream, so gain and bias move into the weights without changing what the model computes. z
has mean zero, so the mean of W's rows over d_model can be removed too, and with it the mean of whatever is written
into the stream, since every reader discards it: that is centring. An RMSNorm keeps the mean, so centring there would
change the model and is refused; so is folding where no norm stands before the attention. A norm of what the attention
writes (Gemma 2, OLMo 2) moves its gain into W_O; its division by the size of what is written stays outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint import StoredStack
from headspan.dims import Fold
from headspan.errors import FoldError


@dataclass(frozen=True)
class NormWeights:
    """A norm's numbers: gain, bias (None for RMSNorm), and the eps inside its square root."""

    kind: Literal["layernorm", "rmsnorm"]
    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"] | None
    eps: float


def checked_fold(stored: StoredStack, fold: str, center: bool, family: str) -> Fold:
    """The fold state, refused if it is unknown or would change what the model computes."""
    if center and fold == "none":
        raise FoldError('center=True goes with fold="layernorm": only a reader behind a LayerNorm discards the mean')
    stack = stored.stack
    if fold == "layernorm" and stack.norm_place == "after" and stack.write_norm is None:
        raise FoldError(
            f"a {family} applies its norm after the attention, so the attention reads the stream itself and there is "
            'nothing to fold; use fold="none"'
        )
    if center and stack.norm.kind == "rmsnorm":
        raise FoldError(
            f"a {family} uses RMSNorm, which keeps the mean; centring would change the model: use center=False"
        )
    if center and stack.norm.absent:
        raise FoldError(
            f"layer {stack.norm.absent[0]} of a {family} reads the stream without a norm, and so its mean too; "
            "centring would change the model: use center=False"
        )
    if fold == "none":
        return "none"
    if fold == "layernorm":
        return "layernorm"
    raise FoldError(f'fold={fold!r} is unknown; it is "none" or "layernorm"')


def folded_reader(
    weight: Float[Tensor, "*heads d_model n_out"],
    bias: Float[Tensor, "*heads n_out"] | None,
    norm: NormWeights,
    center: bool,
) -> tuple[Float[Tensor, "*heads d_model n_out"], Float[Tensor, "*heads n_out"] | None]:
    """A matrix that reads the normed stream, as one that reads the plain normalised stream."""
    if norm.bias is not None:
        shift = norm.bias @ weight
        bias = shift if bias is None else bias + shift
    weight = norm.gain[:, None] * weight
    return (centred(weight, -2) if center else weight), bias


def centred(tensor: Float[Tensor, "*shape"], axis: int = -1) -> Float[Tensor, "*shape"]:
    """`tensor` less its mean along the axis that is d_model."""
    return tensor - tensor.mean(dim=axis, keepdim=True)


def fold_label(fold: Fold, center: bool) -> str:
    """The fold state as provenance writes it."""
    return f"{fold}+centred" if center else fold
