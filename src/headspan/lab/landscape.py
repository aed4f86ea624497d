"""How the loss changes when weights are moved: at random in one group of parameters or one subspace, along the sharpest
direction, on the line between two models, and away from the plateau before the transition.

Random moves have a fixed norm, so that groups compare per unit norm. A subspace of the stream is moved through the
matrices that read it (rows of W_Q, W_K, W_V) or hold it (rows of W_E).

Is the plateau a saddle or a minimum? At a minimum the gradient vanishes and no curvature is negative; at a saddle there
is a direction of negative curvature. So: gradient norm, and the most negative curvature with its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.lab.ablation import Site
from headspan.lab.curvature import LANCZOS_STEPS, LossSurface, lanczos_extremes
from headspan.lab.geometry import groups
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import PROJECTION

DRAWS, NORM = 8, 1.0
PLATEAU_STEPS = 20
"""Lanczos steps on the plateau, where the smallest eigenvalue counts."""


def group_sensitivity(
    surface: LossSurface, seed: int = 0, draws: int = DRAWS, norm: float = NORM
) -> dict[str, tuple[float, float]]:
    """Mean rise of the loss under random moves of one norm inside each group of parameters.

    Returns
    -------
    dict
        By group: mean rise divided by norm^2, and its standard error. For small moves it is half the mean curvature in
        the group, trace of its Hessian block over twice its size; 0 where the loss does not depend on it.
    """
    generator, found = torch.Generator().manual_seed(seed), {}
    for group, names in groups(surface.model).items():
        parameters = surface.model.named_parameters()
        mask = torch.cat([torch.full_like(p, float(name in names)).reshape(-1) for name, p in parameters])
        moves = [torch.randn(len(mask), generator=generator).double() * mask for _ in range(draws)]
        found[group] = _rise(surface, moves, norm)
    return found


def subspace_sensitivity(
    surface: LossSurface, site: Site, basis: Float[Tensor, "d k"], seed: int = 0, draws: int = DRAWS, norm: float = NORM
) -> tuple[float, float]:
    """Mean rise of the loss, per norm^2, under random moves at one site confined to a subspace of the stream, and its
    error.

    The table or matrix W at the site becomes W + Z with the rows (for O: the outputs) of Z in the span of `basis`.
    """
    name = "embed_tokens.weight"
    if site.role != "E":
        name = f"layers.{site.layer}.self_attn.{PROJECTION[site.role]}.weight"
    shape = surface.model.get_parameter(name).shape
    stream = shape[0] if site.role == "O" else shape[1]
    if stream != basis.shape[0]:
        raise ShapeError(f"a basis of R^{basis.shape[0]} does not fit {site}, which sees {stream} dimensions")
    generator, moves = torch.Generator().manual_seed(seed), []
    for _ in range(draws):
        Z = torch.randn(shape, generator=generator).double()
        Z = basis @ (basis.T @ Z) if site.role == "O" else (Z @ basis) @ basis.T
        pieces = {n: torch.zeros_like(p) for n, p in surface.model.named_parameters()} | {name: Z}
        moves.append(torch.cat([piece.reshape(-1) for piece in pieces.values()]))
    return _rise(surface, moves, norm)


@torch.no_grad()
def _rise(surface: LossSurface, moves: Sequence[Float[Tensor, " n"]], norm: float) -> tuple[float, float]:
    if norm <= 0 or len(moves) < 2:
        raise ArgumentError(f"norm needs to be above 0 and draws at least 2, found {norm} and {len(moves)}")
    point = surface.point
    here = surface.loss(point)
    steps = [norm * move / move.norm() for move in moves]
    # Both signs of a move: what the gradient alone would change cancels, and the curvature is left.
    pairs = [(surface.loss(point + step) + surface.loss(point - step)) / 2 - here for step in steps]
    rises = torch.stack(pairs) / norm**2
    return float(rises.mean()), float(rises.std() / len(moves) ** 0.5)


@torch.no_grad()
def loss_along(surface: LossSurface, direction: Float[Tensor, " n"], distances: Sequence[float]) -> list[float]:
    """The loss at signed distances along a direction from the present weights, in nats."""
    unit = direction / direction.norm()
    return [float(surface.loss(surface.point + distance * unit)) for distance in distances]


def sharpest_direction(surface: LossSurface, seed: int = 0) -> Float[Tensor, " n"]:
    """The unit vector of the Hessian's largest eigenvalue."""
    product, n = surface.hessian_product(), len(surface.point)
    return lanczos_extremes(product, n, LANCZOS_STEPS, torch.Generator().manual_seed(seed)).top_vector


@torch.no_grad()
def interpolation(before: LossSurface, after: LabModel, points: int = 11) -> tuple[list[float], list[float], float]:
    """Losses on the line from one model to another, and the barrier between them.

    Returns
    -------
    tuple
        Places in [0, 1], losses there, and the barrier: by how much the loss exceeds the straight line between
        the ends, at most; 0 for a path that never does.
    """
    if before.model.shape != after.shape or points < 3:
        raise ArgumentError(f"a path needs two models of one shape and at least 3 points, found {points}")
    start = before.point
    end = torch.cat([p.detach().double().cpu().reshape(-1) for p in after.parameters()])
    places = torch.linspace(0, 1, points, dtype=torch.float64)
    losses = torch.stack([before.loss(torch.lerp(start, end, place)) for place in places])
    chord = torch.lerp(losses[0], losses[-1], places)
    return places.tolist(), losses.tolist(), max(0.0, float((losses - chord).max()))


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


def plateau_at(surface: LossSurface, seed: int = 0, steps: int = PLATEAU_STEPS) -> Plateau:
    """Gradient and extreme curvature at a model's weights."""
    product, n = surface.hessian_product(), len(surface.point)
    ends = lanczos_extremes(product, n, steps, torch.Generator().manual_seed(seed))
    distances = [sign * size for sign in (-1, 1) for size in (0.1, 0.3, 1.0)]
    losses = loss_along(surface, ends.bottom_vector, [0.0, *distances])
    fall = losses[0] - min(losses)
    return Plateau(float(surface.gradient().norm()), ends.bottom, ends.bottom_error, ends.top, fall, ends.bottom_vector)
