"""What a head loses: all that it writes, or one subspace of what it reads or writes.

A head is ablated where it hands its mixed values to its output matrix: they are replaced by zero, and the head adds
nothing, or by their mean over other text, and it adds what it adds on average, so that only what depends on the tokens
at hand is lost. Its attention pattern stays visible.

A subspace is removed from a head's matrix. With P the projector onto it, a reader becomes (I - P) W and so ignores
whatever is there; a writer becomes W_O (I - P) and writes nothing into it. What other heads read and write is left
alone. Readers see the stream behind their norm, so that is where the subspace counts for them; the bias behind W_O
belongs to no head and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headspan.dims import HeadLabel, Role
from headspan.errors import ArgumentError, ShapeError, UnsupportedModel
from headspan.heads.block import head_noise
from headspan.runtime.forward_pass import forward
from headspan.runtime.interventions.edits import (
    Edits,
    Label,
    head_slice,
    head_weight,
    heads_by_layer,
    role_head,
    weight_view,
)
from headspan.runtime.model import RunnableModel
from headspan.subspaces import Subspace, orthonormal_basis, unit_roundoff

Means = Mapping[HeadLabel, Float[Tensor, " d_value"]]


@dataclass(frozen=True, eq=False)
class AblatedHeads:
    """Heads whose mixed values are replaced by zero, or by `means` where they are given (from `mean_values`)."""

    heads: tuple[Label, ...]
    means: Means | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{'mean' if self.means else 'zero'} for {', '.join(map(str, self.heads))}"

    def apply(self, edits: Edits) -> None:
        for layer, heads in heads_by_layer(edits.model, self.heads).items():
            hook = self._replacing(edits.model, layer, heads)
            edits.hooked(edits.model.linear("O", layer).register_forward_pre_hook(hook))

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        if model.stack.repeats > 1:
            return (f"layers are shared: a head is ablated in all {model.stack.repeats} passes through its layer",)
        return ()

    def _replacing(self, model: RunnableModel, layer: int, heads: list[int]) -> Callable[..., Any]:
        rows = model.stack.projections["O"].rows
        values = {head: self._value(HeadLabel(layer, head)) for head in heads}

        def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            mixed = args[0].clone()
            for head, value in values.items():
                head_slice(mixed, rows, head).copy_(torch.zeros((), device=mixed.device) if value is None else value)
            return (mixed, *args[1:])

        return hook

    def _value(self, label: HeadLabel) -> Tensor | None:
        if self.means is None:
            return None
        if label not in self.means:
            raise ArgumentError(f"there is no mean for {label}; take it with mean_values first")
        return self.means[label]


def mean_values(model: RunnableModel, tokens: Int[Tensor, "batch position"]) -> Means:
    """What every head hands to its output matrix on average over these tokens, all positions alike.

    Where layers are shared, over all passes too.
    """
    run = forward(model, tokens)
    totals: dict[HeadLabel, list[Tensor]] = {}
    for place, attention in enumerate(run.runs):
        means = run.mixed_values(place).mean((0, 1))
        for head, mean in enumerate(means):
            totals.setdefault(HeadLabel(attention.layer, head), []).append(mean)
    return {label: torch.stack(each).mean(0) for label, each in totals.items()}


@dataclass(frozen=True, eq=False)
class WithoutSubspace:
    """A head that reads through `role`, or writes if it is O, nothing of a subspace of R^d_model."""

    head: Label
    role: Role
    subspace: Subspace
    of: str = "a subspace"
    """What the subspace is, for the reader."""

    @property
    def name(self) -> str:
        return f"{self.head}.{self.role} without {self.of}"

    def apply(self, edits: Edits) -> None:
        label = role_head(edits.model, self.head, self.role)
        if self.role != "O" and edits.model.stack.projections[self.role].latent is not None:
            raise UnsupportedModel(
                f"W_{self.role} of a {edits.model.checkpoint.family} reads through a latent space that its heads share"
            )
        if self.subspace.ambient != edits.model.stack.d_model:
            raise ShapeError(
                f"the subspace lies in R^{self.subspace.ambient}, and this model's stream is "
                f"R^{edits.model.stack.d_model}"
            )
        W = head_weight(edits, self.role, label.layer, label.head)
        reading = W.mT if self.role == "O" else W
        B = self.subspace.basis.to(W.device, torch.float64)
        reading.copy_(reading.double() - B @ (B.mT @ reading.double()))

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        return ()


def head_space(model: RunnableModel, head: Label, role: Role) -> Subspace:
    """What a head reads through Q, K or V, or writes through O, in the running model as it is now."""
    label = role_head(model, head, role)
    W = reading_matrix(model, role, label)
    return orthonormal_basis(W, noise=stored_noise(model, W, role, label.layer))


def stored_noise(model: RunnableModel, W: Float[Tensor, "d_model d_head"], role: Role, layer: int) -> Float[Tensor, ""]:
    """Error of an entry of a head's matrix: of the way it is stored, or of the running dtype where that is coarser."""
    stored = model.heads().reader.roundoff(model.stored.role_linear(role, layer))
    return head_noise(W, max(stored, unit_roundoff(model.module.dtype)))


def reading_matrix(model: RunnableModel, role: Role, label: HeadLabel) -> Float[Tensor, "d_model d_head"]:
    """A head's matrix with the stream's axis first, in float64: W_Q, W_K, W_V, or the transpose of W_O."""
    weight = model.linear(role, label.layer).get_parameter("weight")
    W = weight_view(weight.detach(), model.stack.projections[role], role, label.head).double()
    return W.mT if role == "O" else W
