r"""Norms: their numbers, folding one into the weights that read its output, and centering.

A LayerNorm is x -> g * (x - mean x) / sd x + b. What follows it reads (g * z + b) W + c = z (diag(g) W) + (b W + c), z
being the plain normalized stream, so gain and bias move into the weights without changing what the model computes. z
has mean zero, so the mean of W's rows over d_model can be removed too, and with it the mean of whatever is written
into the stream, since every reader discards it: that is centering. An RMSNorm keeps the mean, so centering there would
change the model and is refused; so is folding where no norm stands before the attention. A norm of what the attention
writes (Gemma 2, OLMo 2) moves its gain into W_O; its division by the size of what is written stays outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint import StoredStack
from headspan.checkpoint.families import NormKind
from headspan.dims import Fold
from headspan.errors import ArgumentError, FoldError


@dataclass(frozen=True)
class NormWeights:
    """A norm's numbers: gain, bias (None for RMSNorm), and the eps inside its square root."""

    kind: NormKind
    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"] | None
    eps: float


@dataclass(frozen=True)
class HeadNormWeights:
    """The norm of queries or keys that some families put before positions turn them.

    Gain and bias of every head; `joint` if one norm runs over all heads' features together.
    """

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


def checked_fold(stored: StoredStack, fold: str, center: bool, family: str) -> Fold:
    """The fold state, refused if it is unknown or would change what the model computes."""
    if fold not in get_args(Fold):
        raise ArgumentError(f'fold={fold!r} is unknown; it is "none" or "layernorm"')
    if center and fold == "none":
        raise ArgumentError(
            'center=True goes with fold="layernorm": only a reader behind a LayerNorm discards the mean'
        )
    stack = stored.stack
    if fold == "layernorm" and stack.norm_place == "after" and stack.write_norm is None:
        raise FoldError(
            f"a {family} applies its norm after the attention, so the attention reads the stream itself and there is "
            'nothing to fold; use fold="none"'
        )
    if fold == "layernorm" and len(stack.norm.absent) == stack.n_layers:
        raise FoldError('this model has no norm before the attention, so there is nothing to fold; use fold="none"')
    if center and stack.norm.kind == "rmsnorm":
        raise FoldError(
            f"a {family} uses RMSNorm, which keeps the mean; centering would change the model: use center=False"
        )
    if center and stack.norm.absent:
        raise FoldError(
            f"layer {stack.norm.absent[0]} of a {family} reads the stream without a norm, and so its mean too; "
            "centering would change the model: use center=False"
        )
    return "layernorm" if fold == "layernorm" else "none"


def fold_norm(
    weight: Float[Tensor, "*heads d_model n_out"],
    bias: Float[Tensor, "*heads n_out"] | None,
    norm: NormWeights,
    center: bool,
) -> tuple[Float[Tensor, "*heads d_model n_out"], Float[Tensor, "*heads n_out"] | None]:
    """A matrix that reads the normed stream, as one that reads the plain normalized stream."""
    if norm.bias is not None:
        shift = norm.bias @ weight
        bias = shift if bias is None else bias + shift
    weight = norm.gain[:, None] * weight
    return (without_mean(weight, -2) if center else weight), bias


def without_mean(tensor: Float[Tensor, "*shape"], axis: int = -1) -> Float[Tensor, "*shape"]:
    """`tensor` less its mean along the axis that is d_model."""
    return tensor - tensor.mean(dim=axis, keepdim=True)


def fold_label(fold: Fold, center: bool) -> str:
    """The fold state as provenance writes it."""
    return f"{fold}+centered" if center else fold
