"""Questions that take more training to answer.

- `plateau`: training goes on from the plateau as it is, moved along the most negative curvature either way, and moved
  as far at random. If the plateau is a saddle whose way out is that direction, the moved ones learn sooner.
- `sparsity`: what makes position directions sparse, the optimizer, norm gains, or positions themselves? Adam moves
  every coordinate at its own rate and norm gains act coordinate by coordinate; both single out the axes of the stream,
  which SGD without gains does not. The run's recipe is trained with learned positions under each combination, and the
  leading directions of the position tables are compared by how few coordinates they live on.
- `lengths`: the run's recipe under every position scheme, tested on longer sequences than it was trained on; beside
  them a model that was not trained.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.lab.architecture import POSITIONS
from headspan.lab.curvature import LossSurface
from headspan.lab.findings import RESTARTS
from headspan.lab.landscape import plateau_at
from headspan.lab.model import LabModel
from headspan.lab.optimizers import optimizer_of
from headspan.lab.recipe import Recipe
from headspan.lab.record import score_row
from headspan.lab.run_folder import RunFolder, open_model
from headspan.lab.scores import length_generalization, loss_and_accuracy
from headspan.lab.session import initial_progress, train, train_step
from headspan.lab.study import STRETCHES, Bench
from headspan.subspaces import random_subspaces

DISTANCE, LOOK_EVERY, PATIENCE = 1.0, 50, 1.5
LEADING, ROTATIONS = 4, 999
VARIANTS: Mapping[str, Mapping[str, object]] = {
    "adamw, gains": {"optimizer": "adamw", "norm_gains": True},
    "adamw, no gains": {"optimizer": "adamw", "norm_gains": False},
    "sgd, gains": {"optimizer": "sgd", "norm_gains": True, "learning_rate": 0.3},
    "sgd, no gains": {"optimizer": "sgd", "norm_gains": False, "learning_rate": 0.3},
}


def plateau_study(folder: Path) -> xr.Dataset:
    """Restarts from the plateau of a run.

    Returns
    -------
    Dataset
        `accuracy` [start, after]: OOD accuracy in [0, 1], 1/vocabulary under the null, so many steps after the restart.
        `learned_at` [start]: the first step above one half, NaN if never. `curvature`, `error`: the smallest Hessian
        eigenvalue and its uncertainty; `distance` of the moves, `left` the step of the run they start from.
    """
    bench = Bench.of(folder)
    left, recipe = bench.plateau_step(), bench.recipe.with_settings(cooldown=0)
    wait = PATIENCE * (bench.at.step + 2 * bench.at.width - left)
    steps = LOOK_EVERY * math.ceil(wait / LOOK_EVERY)
    found = plateau_at(LossSurface.of(bench.before(), bench.id), recipe.seed)
    curves = restarts(recipe, bench.before(), found.direction, DISTANCE, steps, LOOK_EVERY)
    return xr.Dataset(
        {
            "accuracy": (("start", "after"), np.array([[value for _, value in curve] for curve in curves.values()])),
            "learned_at": (("start",), [first_above(curve) for curve in curves.values()]),
            "curvature": found.curvature,
            "error": found.error,
            "distance": DISTANCE,
            "left": left,
        },
        coords={"start": list(curves), "after": [step for step, _ in next(iter(curves.values()))]},
    )


def restarts(
    recipe: Recipe, model: LabModel, direction: Float[Tensor, " n"], distance: float, steps: int, every: int = 50
) -> dict[str, list[tuple[int, float]]]:
    """OOD accuracy by step when training goes on from a plateau, moved or not; fresh optimizer, same data for all.

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
        name: _continue(recipe, _move(model, distance * move), steps, every)
        for name, move in zip(RESTARTS, moves, strict=True)
    }


@torch.no_grad()
def _move(model: LabModel, move: Float[Tensor, " n"]) -> LabModel:
    changed, start = copy.deepcopy(model), 0
    for parameter in changed.parameters():
        piece = move[start : start + parameter.numel()].view_as(parameter)
        parameter.add_(piece.to(parameter))
        start += parameter.numel()
    return changed


def _continue(recipe: Recipe, model: LabModel, steps: int, every: int) -> list[tuple[int, float]]:
    source, progress = recipe.source(), initial_progress(recipe)
    progress.model, progress.optimizer = model, optimizer_of(recipe, model)
    test, curve = source.tests(recipe.test_size, recipe.device).ood, []
    while progress.step < steps:
        train_step(recipe, source, progress)
        if progress.step % every == 0:
            curve.append((progress.step, loss_and_accuracy(model, test)["accuracy"]))
    return curve


def first_above(curve: list[tuple[int, float]], level: float = 0.5) -> float:
    """The first step at which accuracy exceeds `level`; NaN if it never does."""
    return next((float(step) for step, value in curve if value > level), float("nan"))


def sparsity_study(folder: Path) -> xr.Dataset:
    """How many coordinates the leading position and token directions live on, by optimizer and norm gains.

    Returns
    -------
    Dataset
        `positions`, `tokens` [variant]: participation in [1, d]; `positions_null`: that of randomly rotated tables,
        about (d + 2)/3, and `positions_p` [variant], how often a rotation is as sparse; `gain_correlation` [variant]:
        rank correlation, over coordinates, of layer 0's gains with their share in the leading position directions, in
        [-1, 1], 0 under the null, NaN without gains; `loss` at the end of training, in nats.
    """
    recipe = RunFolder(folder).recipe()
    found = sparsity_after_training(recipe, recipe.steps)
    names = ("positions", "positions_p", "tokens", "gain_correlation", "loss")
    columns = {name: (("variant",), [row[name] for row in found.values()]) for name in names}
    return xr.Dataset(
        {**columns, "positions_null": next(iter(found.values()))["positions_null"]},
        coords={"variant": list(found)},
        attrs={"d_model": recipe.shape.d_model, "steps": recipe.steps},
    )


def leading_directions(table: Float[Tensor, "row d"], leading: int = LEADING) -> Float[Tensor, "d k"]:
    """Leading right singular directions of a centered table."""
    rows = table.detach().double().cpu()
    directions: Tensor = torch.linalg.svd(rows - rows.mean(0), full_matrices=False).Vh[:leading].T
    return directions


def table_sparsity(table: Float[Tensor, "row d"], leading: int = LEADING) -> dict[str, float]:
    """How few coordinates the leading directions of a table live on.

    Returns
    -------
    dict
        `found`: mean participation, in [1, d]. `null`: that of the same directions turned at random together, about
        d/3, and `p`, how often a rotation's mean is as small.
    """
    directions = leading_directions(table, leading)
    found, rotated = float(participation(directions).mean()), torch.tensor(_rotated_participation(*directions.shape))
    p = (1 + int((rotated <= found).sum())) / (1 + ROTATIONS)
    return {"found": found, "null": float(rotated.mean()), "p": p}


@lru_cache(maxsize=8)
def _rotated_participation(d: int, k: int) -> tuple[float, ...]:
    """Mean participation of each of many random sets of k orthonormal directions of R^d."""
    return tuple(participation(random_subspaces((ROTATIONS,), d, k, 0).basis).mean(-1).tolist())


def participation(directions: Float[Tensor, "*draw d k"]) -> Float[Tensor, "*draw k"]:
    """1 / sum of the fourth powers of each unit column: how many coordinates share it."""
    return directions.pow(4).sum(-2).reciprocal()


def gain_correlation(model: LabModel) -> float:
    """Rank correlation of layer 0's gains with each coordinate's share in the leading position directions."""
    norm = model.stack[0].input_layernorm
    if not model.shape.norm_gains or model.shape.norm == "none":
        return float("nan")
    share = leading_directions(model.embed_positions.weight).square().sum(1)
    gains = norm.get_parameter("weight").detach().double().abs()
    if float(gains.std()) == 0:  # before training
        return float("nan")
    ranks = torch.stack([one.argsort().argsort().double() for one in (share, gains)])
    return float(torch.corrcoef(ranks)[0, 1])


def sparsity_after_training(recipe: Recipe, steps: int) -> dict[str, dict[str, float]]:
    """Sparsity of position and token directions after training under each variant, and before training.

    Returns
    -------
    dict
        By variant: `positions`, `tokens` (participation, in [1, d]), `positions_null`, `positions_p`,
        `gain_correlation`, and `loss` at the end.
    """
    found: dict[str, dict[str, float]] = {}
    for name, options in VARIANTS.items():
        chosen = recipe.with_settings(positions="learned", **options)
        source, progress, loss = chosen.source(), initial_progress(chosen), torch.tensor(float("nan"))
        if not found:
            found["before training"] = _sparsities(progress.model) | {"loss": float("nan")}
        while progress.step < steps:
            loss, _, _ = train_step(chosen, source, progress)
        found[name] = _sparsities(progress.model) | {"loss": loss.item()}
    return found


def _sparsities(model: LabModel) -> dict[str, float]:
    positions, tokens = table_sparsity(model.embed_positions.weight), table_sparsity(model.embed_tokens.weight)
    return {
        "positions": positions["found"],
        "positions_null": positions["null"],
        "positions_p": positions["p"],
        "tokens": tokens["found"],
        "gain_correlation": gain_correlation(model),
    }


def lengths_study(folder: Path) -> xr.Dataset:
    """Copying in longer sequences, by position scheme; the run's own model stands for its own scheme.

    Returns
    -------
    Dataset
        `accuracy` [positions, length]: OOD, in [0, 1], 1/vocabulary under the null; NaN beyond a learned table.
        `accuracy_untrained` [length]: that of the run's own model before training.
    """
    recipe = RunFolder(folder).recipe()
    if recipe.task.kind != "copying":
        raise ArgumentError(f"the study lengths needs the task copying, found {recipe.task.kind}")
    lengths = [int(stretch * recipe.task.length) for stretch in STRETCHES]
    models = (_model_with(folder, scheme) for scheme in POSITIONS)
    rows = [list(length_generalization(model, recipe.task, lengths).values()) for model in models]
    untrained = length_generalization(LabModel(recipe.shape, recipe.seed), recipe.task, lengths)
    return xr.Dataset(
        {
            "accuracy": (("positions", "length"), np.array(rows)),
            "accuracy_untrained": (("length",), list(untrained.values())),
        },
        coords={"positions": list(POSITIONS), "length": lengths},
        attrs={"steps": recipe.steps, "trained_length": recipe.task.length},
    )


def _model_with(folder: Path, scheme: str) -> LabModel:
    files = RunFolder(folder)
    recipe = files.recipe()
    if scheme == recipe.shape.positions:
        return open_model(files.model_folder)
    other = recipe.with_settings(positions=scheme, sharpness_every=0)
    return train(other, measure=lambda model, _, tests, step: score_row(model, tests)).model
