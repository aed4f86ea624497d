"""A run's rows as one Dataset with dim `step`, and back from its file.

Quantities that are measured less often than others are NaN at the steps between. What each is by chance stands beside
it as `<name>_chance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from headspan._version import __version__
from headspan.atomic import written_whole
from headspan.errors import HeadspanError
from headspan.lab.geometry import ANGLE_PAIRS, DIMS, PARTS, groups
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import READERS, sizes
from headspan.lab.recipe import Recipe
from headspan.lab.run_folder import Row
from headspan.lab.scores import attention_chance
from headspan.lab.source import Source

AXES = {**DIMS, "previous_token": ("layer", "head"), "induction": ("layer", "head"), "sharpness_share": ("group",)}


def track_dataset(recipe: Recipe, rows: Sequence[Row]) -> xr.Dataset:
    """The record of a run.

    Parameters
    ----------
    recipe
        The run's recipe; it goes into the attributes.
    rows
        One per recorded step.

    Returns
    -------
    Dataset
        dims `step`, and `layer`, `head`, `rank`, `k`, `part`, `reader`, `pair`, `group` where a quantity has them.
    """
    if not rows:
        raise HeadspanError("a record needs at least one row, found none")
    steps = [int(row["step"]) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row if name != "step"))
    variables = {name: (("step", *AXES.get(name, ())), _stacked(rows, name)) for name in names}
    coordinates = {"step": steps, **_coordinates(recipe)}
    used = {dim for dims, _ in variables.values() for dim in dims}
    dataset = xr.Dataset(
        variables,
        coords={name: values for name, values in coordinates.items() if name in used},
        attrs=_attributes(recipe),
    )
    return dataset.assign(_chances(recipe))


def _attributes(recipe: Recipe) -> dict[str, str | int | float]:
    return {
        "lens": "lab",
        "headspan_version": __version__,
        "task": recipe.task.kind,
        "distribution": recipe.task.distribution,
        "seed": recipe.seed,
        "learning_rate": recipe.learning_rate,
        "batch": recipe.batch,
        "optimizer": recipe.optimizer,
        "positions": recipe.shape.positions,
        "norm": recipe.shape.norm,
        "d_model": recipe.shape.d_model,
        "vocabulary": recipe.task.vocabulary,
        "dropout": recipe.shape.dropout,
    }


def _stacked(rows: Sequence[Row], name: str) -> np.ndarray:
    shape = next(np.shape(row[name]) for row in rows if name in row)
    return np.stack([np.asarray(row[name], dtype=float) if name in row else np.full(shape, np.nan) for row in rows])


def _coordinates(recipe: Recipe) -> dict[str, list[int] | list[str]]:
    d = recipe.shape.d_model
    return {
        "layer": list(range(recipe.shape.layers)),
        "head": list(range(recipe.shape.heads)),
        "k": list(sizes(d)),
        "part": list(PARTS),
        "reader": list(READERS),
        "pair": list(ANGLE_PAIRS),
        "group": list(groups(LabModel(recipe.shape))),
    }


def _chances(recipe: Recipe) -> dict[str, tuple[tuple[str, ...], np.ndarray] | float]:
    """Independent random subspaces; even attention; a guess among the tokens."""
    d, ks = recipe.shape.d_model, np.array(sizes(recipe.shape.d_model), dtype=float)
    even = attention_chance(Source.of(recipe).test("ood", recipe.test_size))
    shape = LabModel(recipe.shape)
    counts = np.array([sum(shape.get_parameter(n).numel() for n in names) for names in groups(shape).values()])
    return {
        "projection_kernel_chance": (("k",), ks / d),
        "top_in_bridge_chance": (("k",), ks / d),
        "composition_score_chance": d**-0.5,
        "previous_token_chance": even["previous_token"],
        "induction_chance": even["induction"],
        "accuracy_chance": 1.0 / recipe.task.vocabulary,
        "sharpness_share_chance": (("group",), counts / counts.sum()),
    }


def write_track(dataset: xr.Dataset, path: Path) -> None:
    """The record as netCDF, whole or not at all."""
    with written_whole(path) as temporary:
        dataset.to_netcdf(temporary, engine="h5netcdf")


def open_track(path: Path) -> xr.Dataset:
    """A record from its file, in memory."""
    try:
        with xr.open_dataset(path, engine="h5netcdf") as opened:
            return opened.load()
    except (OSError, ValueError) as problem:
        raise HeadspanError(f"'{path}' is no record of a lab run: {problem}") from problem
