"""Is the plateau before the transition a saddle or a minimum?

At a minimum the gradient vanishes and no curvature is negative. At a saddle there is a direction of negative curvature,
and moving along it shortens the wait. So: gradient norm, the most negative curvature with its error, and how soon
training learns when it goes on from the plateau, from points moved along that direction either way, and from one moved
as far at random.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lab.lanczos import lanczos_extremes
from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe
from headspan.lab.scores import measured
from headspan.lab.sensitivity import loss_along
from headspan.lab.sharpness import LossSurface
from headspan.lab.source import Source
from headspan.lab.trainer import begun, optimizer_of, tests_of, train_step

STEPS, SEQUENCES = 20, 32
RESTARTS = ("as it is", "along the most negative curvature", "the other way along it", "as far at random")


@dataclass(frozen=True)
class Plateau:
    """Curvature at a point of training.

    `gradient_norm` is that of the loss on the sequences used, which at this sample size does not vanish even where the
    expected gradient does; `curvature` the smallest Ritz value, `error` its distance to an eigenvalue at most; `fall`
    how far the loss falls along it, within unit distance either way, in nats.
    """

    gradient_norm: float
    curvature: float
    error: float
    top: float
    fall: float
    direction: Float[Tensor, " n"]

    @property
    def saddle(self) -> bool:
        """Whether an eigenvalue is certainly negative, and not by rounding: beyond its error and 1 % of the largest."""
        return self.curvature + self.error < -0.01 * abs(self.top)


def plateau_at(surface: LossSurface, seed: int = 0, steps: int = STEPS) -> Plateau:
    """Gradient and extreme curvature at a model's weights."""
    product, n = surface.hessian_product(), len(surface.point)
    ends = lanczos_extremes(product, n, steps, torch.Generator().manual_seed(seed))
    distances = [sign * size for sign in (-1, 1) for size in (0.1, 0.3, 1.0)]
    losses = loss_along(surface, ends.bottom_vector, [0.0, *distances])
    fall = losses[0] - min(losses)
    return Plateau(float(surface.gradient().norm()), ends.bottom, ends.bottom_error, ends.top, fall, ends.bottom_vector)


def restarts(
    recipe: Recipe, model: LabModel, direction: Float[Tensor, " n"], distance: float, steps: int, every: int = 50
) -> dict[str, list[tuple[int, float]]]:
    """OOD accuracy by step when training goes on from a plateau, moved or not; fresh optimiser, same data for all.

    Parameters
    ----------
    recipe, model
        Settings, and the model on its plateau (left as it is).
    direction, distance
        Where to move it, and how far.
    steps, every
        How long to train, and how often to look.
    """
    random = torch.randn(len(direction), generator=torch.Generator().manual_seed(recipe.seed)).double()
    along = direction / direction.norm()
    moves = (torch.zeros_like(direction), along, -along, random / random.norm())
    return {
        name: _continued(recipe, _moved(model, distance * move), steps, every)
        for name, move in zip(RESTARTS, moves, strict=True)
    }


@torch.no_grad()
def _moved(model: LabModel, move: Float[Tensor, " n"]) -> LabModel:
    changed, start = copy.deepcopy(model), 0
    for parameter in changed.parameters():
        piece = move[start : start + parameter.numel()].view_as(parameter)
        parameter.add_(piece.to(parameter))
        start += parameter.numel()
    return changed


def _continued(recipe: Recipe, model: LabModel, steps: int, every: int) -> list[tuple[int, float]]:
    source, progress = Source.of(recipe), begun(recipe)
    progress.model, progress.optimizer = model, optimizer_of(recipe, model)
    test, curve = tests_of(recipe, source).ood, []
    while progress.step < steps:
        train_step(recipe, source, progress)
        if progress.step % every == 0:
            curve.append((progress.step, measured(model, test)["accuracy"]))
    return curve


def first_above(curve: list[tuple[int, float]], level: float = 0.5) -> float:
    """The first step at which accuracy exceeds `level`; NaN if it never does."""
    return next((float(step) for step, value in curve if value > level), float("nan"))
