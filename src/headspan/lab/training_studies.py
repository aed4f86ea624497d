"""Questions that take more training to answer; each is asked of a finished run by its name, and its answer kept there.

- `plateau`: training goes on from the plateau as it is, moved along the most negative curvature either way, and moved
  as far at random. If the plateau is a saddle whose way out is that direction, the moved ones learn sooner.
- `sparsity`: the run's recipe with learned positions, by AdamW and SGD, with and without norm gains.
- `lengths`: the run's recipe under every position scheme, tested on longer sequences than it was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from headspan.errors import HeadspanError
from headspan.lab.architecture import POSITIONS
from headspan.lab.dataset import write_track
from headspan.lab.lengths import length_generalisation
from headspan.lab.model import LabModel
from headspan.lab.plateau import first_above, plateau_at, restarts
from headspan.lab.position_sparsity import trained_sparsity
from headspan.lab.recording import score_row
from headspan.lab.run_folder import RunFolder
from headspan.lab.saving import open_model
from headspan.lab.sharpness import LossSurface
from headspan.lab.study import STRETCHES, Bench, study_file
from headspan.lab.trainer import train

DISTANCE, LOOK_EVERY, PATIENCE = 1.0, 50, 1.5


def plateau_study(folder: Path) -> xr.Dataset:
    """Restarts from the plateau of a run.

    Returns
    -------
    Dataset
        `accuracy` [start, after]: OOD accuracy in [0, 1], 1/vocabulary by chance, so many steps after the restart.
        `learned_at` [start]: the first step above one half, NaN if never. `curvature`, `error`: the smallest Hessian
        eigenvalue and its uncertainty; `distance` of the moves, `left` the step of the run they start from.
    """
    bench = Bench.of(folder)
    left, recipe = bench.plateau_step(), bench.recipe.changed(cooldown=0)
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


def sparsity_study(folder: Path) -> xr.Dataset:
    """How many coordinates the leading position and token directions live on, by optimiser and norm gains.

    Returns
    -------
    Dataset
        `positions`, `tokens` [variant]: participation in [1, d]; `chance`: that of random directions, about (d + 2)/3;
        `loss` at the end of training, in nats.
    """
    recipe = RunFolder(folder).recipe()
    found = trained_sparsity(recipe, recipe.steps)
    columns = {name: (("variant",), [row[name] for row in found.values()]) for name in ("positions", "tokens", "loss")}
    return xr.Dataset(
        {**columns, "chance": next(iter(found.values()))["chance"]},
        coords={"variant": list(found)},
        attrs={"d_model": recipe.shape.d_model, "steps": recipe.steps},
    )


def lengths_study(folder: Path) -> xr.Dataset:
    """Copying in longer sequences, by position scheme; the run's own model stands for its own scheme.

    Returns
    -------
    Dataset
        `accuracy` [positions, length]: OOD, in [0, 1], 1/vocabulary by chance; NaN beyond a learned table.
    """
    recipe = RunFolder(folder).recipe()
    if recipe.task.kind != "copying":
        raise HeadspanError(f"longer sequences are drawn for copying, not for {recipe.task.kind}")
    lengths = [int(stretch * recipe.task.length) for stretch in STRETCHES]
    rows = []
    for scheme in POSITIONS:
        model = _trained_with(folder, scheme)
        rows.append(list(length_generalisation(model, recipe.task, lengths).values()))
    return xr.Dataset(
        {"accuracy": (("positions", "length"), np.array(rows))},
        coords={"positions": list(POSITIONS), "length": lengths},
        attrs={"steps": recipe.steps, "trained_length": recipe.task.length},
    )


def _trained_with(folder: Path, scheme: str) -> LabModel:
    files = RunFolder(folder)
    recipe = files.recipe()
    if scheme == recipe.shape.positions:
        return open_model(files.model_folder)
    other = recipe.changed(positions=scheme, sharpness_every=0)
    return train(other, measure=lambda model, _, tests, step: score_row(model, tests)).model


STUDIES: Mapping[str, Callable[[Path], xr.Dataset]] = {
    "plateau": plateau_study,
    "sparsity": sparsity_study,
    "lengths": lengths_study,
}


def checked_study(name: str) -> str:
    """The name, if there is a study of that name."""
    if name not in STUDIES:
        raise HeadspanError(f"there is no study {name!r}; studies are {', '.join(STUDIES)}")
    return name


def keep_study(name: str, folder: Path) -> xr.Dataset:
    """A study of the run in a folder, made and kept there."""
    found = STUDIES[checked_study(name)](folder)
    write_track(found, study_file(folder, name))
    return found
