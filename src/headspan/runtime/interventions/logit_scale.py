r"""Scaling the singular values of W_Q and W_K by alpha, and with them all attention logits by alpha^2.

A logit is q k with q = x W_Q + b_Q and k = y W_K + b_K, so both matrices and both biases are multiplied by alpha: the
logits are then exactly alpha^2 times as large for the same inputs, which is a softmax at temperature 1 / alpha^2.
Where that cannot be done as said, the same logits are reached another way:

- a kv head whose readers are not all chosen keeps its keys, and the chosen queries take alpha^2;
- so do the queries of latent attention, whose turned keys all heads share;
- norms of queries and keys cancel any factor of W_Q: their gains (and biases) are multiplied instead.

Deeper layers read other inputs than before. Parts of the logits that are no product of query and key stay: ALiBi and
relative positions, sinks. A cap or a clip bends what is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headspan.errors import ArgumentError
from headspan.runtime.interventions.edits import (
    Edits,
    Label,
    head_bias,
    head_gains,
    head_slice,
    head_weight,
    heads_by_layer,
    shared_gain,
    whole_groups,
)
from headspan.runtime.model import RunnableModel


@dataclass(frozen=True)
class ScaledLogits:
    """Singular values of W_Q and W_K times alpha, so logits times alpha^2; of all heads, or of those named."""

    alpha: float
    heads: tuple[Label, ...] | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise ArgumentError(f"alpha needs to be a number above 0, found {self.alpha}")

    @property
    def name(self) -> str:
        return f"alpha {self.alpha:.4g}" + ("" if self.heads is None else f" of {', '.join(map(str, self.heads))}")

    def apply(self, edits: Edits) -> None:
        model = edits.model
        for layer, heads in heads_by_layer(model, self.heads).items():
            kv_heads = [] if model.stack.apart else whole_groups(model, heads)
            group = model.n_heads // model.stack.n_kv_heads
            _check_shared_gain(model, layer, heads)
            factors = {head: self.alpha if head // group in kv_heads else self.alpha**2 for head in heads}
            _scale(edits, "Q", layer, factors)
            _scale(edits, "K", layer, dict.fromkeys(kv_heads, self.alpha))

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        stack = model.stack
        partial = self.heads is not None and any(
            len(whole_groups(model, own)) * (model.n_heads // stack.n_kv_heads) < len(own)
            for own in heads_by_layer(model, self.heads).values()
        )
        said = {
            "queries and keys are normed, which cancels a factor of W_Q: the gains of those norms were scaled": (
                stack.query_norm is not None
            ),
            "a kv head has readers that were not chosen, so their queries alone were scaled, by alpha^2": partial,
            "all heads share the turned keys, so queries alone were scaled, by alpha^2": bool(stack.apart),
            f"{stack.positions} position terms of the logits are not scaled": stack.positions in ("alibi", "relative"),
            "sinks are not scaled": stack.sinks is not None,
            "logits are capped after scaling": stack.softcap is not None,
            "queries and keys are clipped after scaling": stack.clip is not None,
            "biases are scaled with the matrices": any(
                getattr(model.linear(role, model.layers[0]), "bias", None) is not None for role in ("Q", "K")
            ),
        }
        return tuple(note for note, holds in said.items() if holds)


def _check_shared_gain(model: RunnableModel, layer: int, heads: Sequence[int]) -> None:
    if shared_gain(model) and len(heads) < model.n_heads:
        raise ArgumentError(
            f"the heads of layer {layer} share one gain of their query norm, so they can only be scaled together; "
            "choose all heads of the layer"
        )


def _scale(edits: Edits, role: Literal["Q", "K"], layer: int, factors: dict[int, float]) -> None:
    """Multiply the queries or keys of some heads, each by its factor."""
    stack = edits.model.stack
    norm = stack.query_norm if role == "Q" else stack.key_norm
    if norm is not None:
        shared = norm.span == "head" and "{head}" not in norm.weight
        for head, factor in list(factors.items())[: 1 if shared else None]:
            for values, offset in head_gains(edits, role, layer, head):
                values.copy_((values + offset) * factor - offset)
        return
    for head, factor in factors.items():
        head_weight(edits, role, layer, head).mul_(factor)
        bias = head_bias(edits, role, layer, head)
        if bias is not None:
            bias.mul_(factor)
        if role in stack.apart:
            _scale_apart(edits, role, layer, head, factor)


def _scale_apart(edits: Edits, role: Literal["Q", "K"], layer: int, head: int, factor: float) -> None:
    """The features that positions turn, where latent attention keeps them in rows of their own."""
    projection = edits.model.stack.apart[role]
    linear = edits.model.submodule(edits.model.stored.at_layer(projection.linear, layer).weight.rpartition(".")[0])
    for name in ("weight", "bias"):
        values = edits.parameter(linear, name)
        if values is not None:
            features = values.mT if name == "weight" and projection.linear.stored == "out_in" else values
            head_slice(features, projection.rows, head).mul_(factor)
