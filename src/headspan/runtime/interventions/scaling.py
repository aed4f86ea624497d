"""Heads whose contribution to the stream is multiplied by a number: 0 ablates one, 1 leaves it, 2 doubles it.

A head is scaled where it hands its mixed values to its output matrix; its attention pattern stays visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from torch import nn

from headspan.dims import HeadLabel
from headspan.errors import ArgumentError
from headspan.runtime.interventions.edits import Edits, head_slice, heads_by_layer
from headspan.runtime.model import RunnableModel


@dataclass(frozen=True, eq=False)
class ScaledHeads:
    """Heads by label with the number that their contribution is multiplied by."""

    scales: Mapping[str, float]

    def __post_init__(self) -> None:
        wrong = next((label for label, scale in self.scales.items() if not isfinite(scale)), None)
        if wrong is not None:
            raise ArgumentError(f"{wrong} is to be scaled by {self.scales[wrong]}; that needs a finite number")

    @property
    def name(self) -> str:
        return ", ".join(f"{label} x {scale:g}" for label, scale in self.scales.items())

    def apply(self, edits: Edits) -> None:
        scales = {HeadLabel.parse(label): scale for label, scale in self.scales.items()}
        for layer, heads in heads_by_layer(edits.model, self.scales).items():
            own = {head: scales[HeadLabel(layer, head)] for head in heads}
            edits.hooked(edits.model.linear("O", layer).register_forward_pre_hook(_scaling(edits.model, own)))

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        if model.stack.repeats > 1:
            return (f"layers are shared: a head is scaled in all {model.stack.repeats} passes through its layer",)
        return ()


def _scaling(model: RunnableModel, scales: Mapping[int, float]) -> Callable[..., Any]:
    rows = model.stack.projections["O"].rows

    def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        mixed = args[0].clone()
        for head, scale in scales.items():
            head_slice(mixed, rows, head).mul_(scale)
        return (mixed, *args[1:])

    return hook
