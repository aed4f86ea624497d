r"""A message between two heads, and taking it away from one reader while all others keep it.

What a source head writes at a position is w = A (x W_V) W_O. A head of a later layer reads the stream behind that
layer's norm, g * C s / sigma + b, where C removes the mean in a LayerNorm and nothing in an RMSNorm. With sigma held at
its value in the unmodified run the norm is linear, and the source's part of what stands there is the *message*

    v = g * C w / sigma.

Through W_r the target reads only P v, P being the projector onto the column span of W_r: `readable_part`. Taking P v
from the input of that one matrix and head leaves everything else the target reads, the source's own output, and all
other readers as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headspan.dims import HeadLabel, Role
from headspan.errors import UnsupportedModel
from headspan.heads.norms import NormWeights
from headspan.runtime.forward_pass import Forward
from headspan.runtime.interventions.ablation import reading_matrix
from headspan.runtime.interventions.edits import Edits, Label, head_slice, role_head
from headspan.runtime.model import RunnableModel
from headspan.subspaces import Subspace

Message = Float[Tensor, "*batch position d_model"]
AGREEMENT = 1e-3
"""Relative difference up to which what was read counts as the norm of the stream."""


def obstacle_to_messages(model: RunnableModel) -> str | None:
    """Why messages cannot be told apart in this model; None where they can."""
    stack = model.stack
    if stack.norm_place != "before":
        return "its attention reads no norm of a stream that heads add to"
    if stack.write_norm is not None:
        return "it norms what all heads of a layer write together"
    if stack.repeats > 1:
        return "its layers are run through several times"
    if any(projection.latent is not None for projection in stack.projections.values()):
        return "its heads read through latent spaces that they share"
    if model.checkpoint.config.get("residual_multiplier") not in (None, 1, 1.0):
        return "it scales what its layers write"
    return None


@dataclass(frozen=True, eq=False)
class NormedStream:
    """The norm before one layer as it acted in a run: linear, once sigma is known."""

    norm: NormWeights
    inverse_sigma: Float[Tensor, "batch position 1"]

    @classmethod
    def of(cls, run: Forward, layer: int) -> NormedStream:
        """From a run; refused where the layer did not read the norm of its stream."""
        reason = obstacle_to_messages(run.model)
        if reason is not None:
            raise UnsupportedModel(
                f"messages between heads of '{run.model.checkpoint.source}' are not defined: {reason}"
            )
        place = run.model.layers.index(layer)
        norm, state = run.model.heads().norm(layer), run.states[:, place].double()
        plain = _without_mean(norm, state)
        inverse = (plain.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
        found = cls(norm, inverse)
        read = run.runs[place].read.double()
        expected = found.seen(state) + (0.0 if norm.bias is None else norm.bias.to(state))
        if float((expected - read).norm()) > AGREEMENT * float(read.norm()):
            raise UnsupportedModel(
                f"layer {layer} of '{run.model.checkpoint.source}' does not read the norm of its stream as described"
            )
        return found

    def seen(self, written: Message) -> Message:
        """What was written into the stream, as it stands behind the norm."""
        return self.norm.gain.to(written) * _without_mean(self.norm, written) * self.inverse_sigma.to(written)


def _without_mean(norm: NormWeights, x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True) if norm.kind == "layernorm" else x


def arriving_message(run: Forward, stream: NormedStream, source: HeadLabel) -> Message:
    """What a source head wrote, as it stands behind the norm of a later layer."""
    return stream.seen(run.head_writes(run.model.layers.index(source.layer))[:, :, source.head].double())


def readable_part(message: Message, space: Subspace) -> Message:
    """The part of a message inside a subspace of the target's input."""
    return (message @ space.basis.to(message)) @ space.basis.to(message).mT


@dataclass(frozen=True, eq=False)
class WithoutMessage:
    """Something is taken from what one head reads through one role, on the tokens it was measured on."""

    target: Label
    role: Role
    removed: Message = field(repr=False)
    name: str = "without a message"

    def apply(self, edits: Edits) -> None:
        label = role_head(edits.model, self.target, self.role)
        change = self.removed @ reading_matrix(edits.model, self.role, label).to(self.removed)
        edits.hooked(edits.model.linear(self.role, label.layer).register_forward_hook(self._hook(edits, label, change)))

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        return ("the norm before the target is held at its unmodified scale",)

    def _hook(self, edits: Edits, label: HeadLabel, change: Tensor) -> Callable[..., Any]:
        rows = edits.model.stack.projections[self.role].rows

        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            changed = output.clone()
            own = head_slice(changed, rows, label.head)
            own.sub_(change.to(own))
            return changed

        return hook
