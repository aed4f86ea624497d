"""Changing a running model so that it can be undone: the context manager, and the record of what was as before.

1. Whoever wants to write into a parameter asks the record for it, which first keeps a copy of its bits.
2. Hooks are registered through the record too.
3. On leaving the context, for whatever reason, hooks are removed and every copy is written back, the last change
   first; contexts may be nested.

Parameters stay the same objects throughout, so that views, ties and optimizers of others are not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

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
