"""Ablating heads: what a head hands to its output matrix is replaced by zero, or by its mean over other text.

With zero a head adds nothing. With its mean it adds what it adds on average, so that only what depends on the tokens at
hand is lost. Its attention pattern stays visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headspan.dims import HeadLabel
from headspan.errors import ShapeError
from headspan.runtime.interventions.edits import Edits
from headspan.runtime.interventions.head_parameters import Label, chosen_heads, head_slice
from headspan.runtime.model import RunnableModel
from headspan.runtime.running import forward

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
        for layer, heads in chosen_heads(edits.model, self.heads).items():
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
            raise ShapeError(f"there is no mean for {label}; take it with mean_values first")
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
