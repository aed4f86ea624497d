"""Changing a running model so that it can be undone: the context manager, and the record of what was as before.

1. Whoever wants to write into a parameter asks the record for it, which first keeps a copy of its bits.
2. Hooks are registered through the record too.
3. On leaving the context, for whatever reason, hooks are removed and every copy is written back, the last change
   first; contexts may be nested.

Parameters stay the same objects throughout, so that views, ties and optimizers of others are not disturbed.

Where a head's numbers are in the running model: views into its stored tensors, to be read or written.

The families' descriptions say which features of which tensor belong to which head; a single head's features are always
a view, whatever the layout: fused or apart, grouped or not, either axis order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headspan.checkpoint.families import HeadNorm, Projection, Rows
from headspan.dims import KV_ROLES, HeadLabel, Role
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.runtime.model import RunnableModel


class Edits:
    """What has been changed in a running model, and how it was."""

    def __init__(self, model: RunnableModel) -> None:
        self.model = model
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._hooks: list[RemovableHandle] = []

    def parameter(self, module: nn.Module, name: str) -> Tensor | None:
        """A parameter to write into, its bits kept; None where the module has none of that name."""
        found = getattr(module, name, None)
        return None if found is None else self.keep(found)

    def keep(self, parameter: Tensor) -> Tensor:
        """`parameter` itself, to write into, its bits kept the first time it is asked for."""
        if id(parameter) not in self._before:
            self._before[id(parameter)] = (parameter, parameter.detach().clone())
        return parameter.detach()

    def hooked(self, handle: RemovableHandle) -> None:
        """Remember to remove a hook."""
        self._hooks.append(handle)

    @torch.no_grad()
    def undo(self) -> None:
        """Everything as it was, bit for bit."""
        for hook in reversed(self._hooks):
            hook.remove()
        for parameter, bits in self._before.values():
            parameter.copy_(bits)
        self._hooks, self._before = [], {}


@runtime_checkable
class Intervention(Protocol):
    """A change to a running model."""

    @property
    def name(self) -> str:
        """What is changed, in a few words."""
        ...

    def apply(self, edits: Edits) -> None:
        """Make the change, through the record that can undo it."""
        ...

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        """What a reader of the results must know about the change in this model."""
        ...


@contextmanager
def intervened(model: RunnableModel, *interventions: Intervention) -> Iterator[tuple[str, ...]]:
    """Within the block the model is changed, one intervention after another; after it, it is as before, bit for bit.

    Parameters
    ----------
    model
        From `open_runnable`; changed in place.
    interventions
        In the order in which they are made.

    Yields
    ------
    tuple of str
        What must be known about the changes in this model, such as norms that were scaled in place of matrices.
    """
    edits = Edits(model)
    try:
        with torch.no_grad():
            for each in interventions:
                each.apply(edits)
        yield tuple(dict.fromkeys(note for each in interventions for note in each.notes(model)))
    finally:
        edits.undo()


Label = str | tuple[int, int] | HeadLabel


def head_slice(features: Float[Tensor, "*other n_features"], rows: Rows, head: int) -> Float[Tensor, "*other d_head"]:
    """One head's part of the last axis of a stored tensor, as a view."""
    # `view`, not `reshape`: an axis can always be split without copying, and a copy would swallow what is written.
    groups = features.view(*features.shape[:-1], rows.n_groups, rows.group_rows)
    own = groups.narrow(-1, rows.start, rows.per_group * rows.d_head)
    heads = own.view(*own.shape[:-1], rows.per_group, rows.d_head)
    return heads[..., head // rows.per_group, head % rows.per_group, :]


def weight_view(
    weight: Float[Tensor, "_ _"], projection: Projection, role: Role, head: int
) -> Float[Tensor, "n_in n_out"]:
    """One head's matrix in the library's layout, [d_model, d_head] or for O [d_head, d_model], as a view."""
    heads_last = (projection.linear.stored == "in_out") != (role == "O")
    own = head_slice(weight if heads_last else weight.mT, projection.rows, head)
    return own.mT if role == "O" else own


def head_weight(edits: Edits, role: Role, layer: int, head: int) -> Float[Tensor, "n_in n_out"]:
    """A head's matrix in the running model, to write into."""
    model = edits.model
    weight = edits.parameter(model.linear(role, layer), "weight")
    if weight is None:  # a Linear without weight does not exist; this is for the type checker
        raise UnsupportedModel(f"W_{role} of layer {layer} has no weight")
    return weight_view(weight, model.stack.projections[role], role, head)


def head_bias(edits: Edits, role: Role, layer: int, head: int) -> Float[Tensor, " d_head"] | None:
    """A head's bias of Q, K or V in the running model, to write into; None where there is none."""
    bias = edits.parameter(edits.model.linear(role, layer), "bias")
    return None if bias is None else head_slice(bias, edits.model.stack.projections[role].rows, head)


def head_gains(edits: Edits, role: Literal["Q", "K"], layer: int, head: int) -> list[tuple[Tensor, float]]:
    """Gain and bias of the norm of a head's queries or keys, to write into, each with the offset it is stored with."""
    model = edits.model
    norm = _head_norm(model, role)
    if norm is None:
        return []
    found = []
    for template, offset in ((norm.weight, norm.offset), (norm.bias, 0.0)):
        if template is None:
            continue
        module, _, leaf = template.format(layer=model.stack.key(layer), head=head).rpartition(".")
        values = edits.parameter(model.submodule(module), leaf)
        if values is not None:
            found.append((_own_gain(values, norm, template, model.stack.projections[role].rows, head), offset))
    return found


def _own_gain(values: Tensor, norm: HeadNorm, template: str, rows: Rows, head: int) -> Tensor:
    if norm.span == "head" or "{head}" in template:
        return values
    return values.reshape(rows.n_heads, rows.d_head)[head]


def _head_norm(model: RunnableModel, role: Literal["Q", "K"]) -> HeadNorm | None:
    return model.stack.query_norm if role == "Q" else model.stack.key_norm


def shared_gain(model: RunnableModel) -> bool:
    """Whether all heads of a layer have one gain of their query norm: it then belongs to the layer."""
    norm = model.stack.query_norm
    return norm is not None and norm.span == "head" and "{head}" not in norm.weight


def find_head(model: RunnableModel, label: Label) -> HeadLabel:
    """A head, or kv head, that this model has."""
    found = label if isinstance(label, HeadLabel) else HeadLabel.parse(label)
    count = model.stack.n_kv_heads if found.kv else model.n_heads
    if found.layer not in model.layers or not 0 <= found.head < count:
        spelled = HeadLabel(model.layers[0], 0, found.kv), HeadLabel(model.layers[-1], count - 1, found.kv)
        raise ArgumentError(f"head {found} does not exist; this model has {spelled[0]} to {spelled[1]}")
    return found


def role_head(model: RunnableModel, label: Label, role: Role) -> HeadLabel:
    """The head whose matrix of that role is meant: for K and V of a grouped model it must be named as a kv head."""
    found = find_head(model, label)
    grouped = model.stack.n_kv_heads < model.n_heads
    if role in KV_ROLES and grouped and not found.kv:
        group = model.n_heads // model.stack.n_kv_heads
        shared = HeadLabel(found.layer, found.head // group, kv=True)
        raise ArgumentError(f"W_{role} of {found} is shared by {group} heads; name the kv head {shared}")
    if role not in KV_ROLES and grouped and found.kv:
        raise ArgumentError(f"W_{role} belongs to a head such as L{found.layer}H0, not to the kv head {found}")
    return found


def heads_by_layer(model: RunnableModel, heads: Iterable[Label] | None) -> dict[int, list[int]]:
    """Query heads by layer: all of them, or those given."""
    if heads is None:
        return {layer: list(range(model.n_heads)) for layer in model.layers}
    chosen: dict[int, list[int]] = {}
    for label in (find_head(model, each) for each in heads):
        if label.kv:
            raise ArgumentError(f"{label} is a kv head; name the heads that read it, such as L{label.layer}H0")
        chosen.setdefault(label.layer, []).append(label.head)
    if not chosen:
        raise ArgumentError("no head was named; name some, or leave the choice out for all of them")
    return {layer: sorted(set(own)) for layer, own in sorted(chosen.items())}


def whole_groups(model: RunnableModel, heads: Sequence[int]) -> list[int]:
    """The kv heads all of whose readers are among these heads of a layer."""
    group = model.n_heads // model.stack.n_kv_heads
    own = set(heads)
    return [kv for kv in range(model.stack.n_kv_heads) if own >= set(range(kv * group, (kv + 1) * group))]
