"""AdamW by torch's own fused update, without what torch's optimizer class brings along; and the class for SGD.

Making a `torch.optim.AdamW` imports torch's compiler, some two seconds of processor time that a run of 15 does not
need. The update itself, `torch.optim.adamw.adamw`, does not. The state has the form of torch's, so that runs that were
begun with it are resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim.adamw import adamw

from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe

SETTINGS = ("lr", "betas", "eps", "weight_decay")


class AdamW:
    """AdamW on some parameters, fused; the same bytes as `torch.optim.AdamW(..., fused=True)`."""

    def __init__(self, parameters: Iterable[torch.Tensor], **settings: Any) -> None:
        self.parameters = list(parameters)
        self.param_groups: list[dict[str, Any]] = [dict(settings)]
        self.steps = [torch.zeros((), device=p.device) for p in self.parameters]
        self.means, self.squares = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One update from the gradients that are there."""
        group = self.param_groups[0]
        gradients = {place: p.grad for place, p in enumerate(self.parameters) if p.grad is not None}
        adamw(
            [self.parameters[place] for place in gradients],
            list(gradients.values()),
            [self.means[place] for place in gradients],
            [self.squares[place] for place in gradients],
            [],
            [self.steps[place] for place in gradients],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state in the form of torch's own AdamW."""
        columns = zip(self.steps, self.means, self.squares, strict=True)
        state = {
            place: {"step": step, "exp_avg": mean, "exp_avg_sq": square}
            for place, (step, mean, square) in enumerate(columns)
        }
        group = {**self.param_groups[0], "params": list(range(len(self.parameters)))}
        return {"state": state, "param_groups": [group]}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of this class or of torch's own; parameters that were never updated have none in it."""
        self.param_groups = [{name: state["param_groups"][0][name] for name in SETTINGS}]
        for place, kept in state["state"].items():
            columns = ((self.steps, "step"), (self.means, "exp_avg"), (self.squares, "exp_avg_sq"))
            for column, name in columns:
                column[place].copy_(kept[name])


Optimizer = torch.optim.Optimizer | AdamW


def optimizer_of(recipe: Recipe, model: LabModel) -> Optimizer:
    """AdamW, or SGD with momentum; weight decay on every parameter, as published."""
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
    settings = {"lr": recipe.learning_rate, "betas": recipe.betas, "eps": recipe.eps}
    return AdamW(model.parameters(), **settings, weight_decay=recipe.weight_decay)
