r"""From the tables to what the first attention layer reads: what comes of the token, of the position, of neither.

A LayerNorm is linear but for its division by sigma: with C the removal of the mean and c a constant row,

    LN(e + p + c) = g * C e / sigma + g * C p / sigma + (g * C c / sigma + b),   sigma^2 = |C (e + p + c)|^2 / d + eps,

so the split into three summands is exact once sigma is taken from their sum. An RMSNorm is the same without C and b.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families.parts import layer_norm
from headspan.errors import MissingTensor
from headspan.heads.heads import Heads
from headspan.heads.norms import NormWeights, without_mean


@dataclass(frozen=True)
class FirstRead:
    """The norm between the tables and the first attention layer, with what is added and multiplied before it."""

    norm: NormWeights
    constant: Float[Tensor, " d_model"] | None
    token_scale: float

    def split(
        self, tokens: Float[Tensor, "*n d_model"], positions: Float[Tensor, "*n d_model"]
    ) -> tuple[Float[Tensor, "*n d_model"], Float[Tensor, "*n d_model"], Float[Tensor, "*n d_model"]]:
        """What is read because of the token, because of the position, and whatever both are; their sum is all of it."""
        tokens = self.token_scale * tokens
        rest = torch.zeros_like(tokens) if self.constant is None else self.constant.to(tokens).expand_as(tokens)
        parts = [tokens, positions, rest]
        if self.norm.kind == "layernorm":
            parts = [without_mean(part) for part in parts]
        sigma = (sum(parts).square().mean(-1, keepdim=True) + self.norm.eps).sqrt()  # type: ignore[union-attr]
        token, position, rest = (self.norm.gain.to(tokens) * part / sigma for part in parts)
        return token, position, rest if self.norm.bias is None else rest + self.norm.bias.to(tokens)


def first_read(heads: Heads) -> FirstRead:
    """What stands between the tables and layer 0 of these heads; refused by name where headspan has no description."""
    stack, family = heads.stack, heads.checkpoint.family
    for table in (stack.tokens, stack.position_table):
        if table is not None and table.through is not None:
            raise MissingTensor(f"a {family} norms token and position before it widens them to d_model")
    entry = stack.entry
    if entry is None:
        if stack.norm_place != "before" or 0 in stack.norm.absent:
            raise MissingTensor(f"what a {family} does between its tables and layer 0 is not described")
        return FirstRead(heads.norm(0), None, 1.0)
    names, config = heads.reader.stored.names, heads.checkpoint.config
    norm = heads.reader.norm(layer_norm(entry.norm.format(stack=stack.name), stack.norm.eps))
    found = None if entry.constant is None else names.find(entry.constant)
    constant = None if found is None else heads.reader.rows(found)[0]
    scaled = entry.root_scale is not None and config.flag(entry.root_scale)
    return FirstRead(norm, constant, heads.d_model**0.5 if scaled else 1.0)
