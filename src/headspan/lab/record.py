"""A run's record: a row of numbers at a step, all rows as one Dataset with dim `step`, and back from its file.

A row holds test scores, attention scores, geometry and, less often, sharpness. Quantities that are measured less often
than others are NaN at the steps between. What each is under the null stands beside it as `<name>_null`.

Every lens that follows a series, on every kept checkpoint of a run, as one tree with dim `step`.

Lenses cost seconds, rows of the record milliseconds; so the lenses run afterwards, on the checkpoints, and their series
lies beside the record. Nodes are `<lens>/<node>`, each variable with a leading axis `step`. A checkpoint too degenerate
for a lens is left out of that lens's series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from headspan._version import __version__
from headspan.atomic import written_whole
from headspan.errors import ArgumentError, DegenerateSubspace, HeadspanError
from headspan.frames import nodes_of
from headspan.lab.geometry import ANGLE_PAIRS, DIMS, geometry_row, groups
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import PARTS, READERS, sizes
from headspan.lab.recipe import Recipe
from headspan.lab.scores import accuracy, attention_null, attention_scores, next_token_loss
from headspan.lab.source import Tests
from headspan.lenses.catalog import lens, lenses
from headspan.lenses.model import open_model
from headspan.lenses.run import run
from headspan.lenses.series import along_steps
from headspan.result import Result
from headspan.storage import read_netcdf, write_netcdf
from headspan.threads import one_thread

Row = dict[str, np.ndarray]
AXES = {**DIMS, "previous_token": ("layer", "head"), "induction": ("layer", "head"), "sharpness_share": ("group",)}


@torch.no_grad()
def score_row(model: LabModel, tests: Tests) -> Row:
    """Loss and accuracy on both tests; previous-token and induction scores on the out-of-distribution one."""
    trace = model.trace(tests.ood.tokens)
    inside = model(tests.id.tokens)
    scores = attention_scores(trace, tests.ood)
    row = {
        "id_loss": float(next_token_loss(inside, tests.id)),
        "id_accuracy": accuracy(inside, tests.id),
        "ood_loss": float(next_token_loss(trace.logits, tests.ood)),
        "ood_accuracy": accuracy(trace.logits, tests.ood),
    }
    return {name: np.array(value) for name, value in row.items()} | {
        name: value.cpu().numpy() for name, value in scores.items()
    }


def record_row(model: LabModel, recipe: Recipe, tests: Tests, step: int) -> Row:
    """Everything that is recorded at a step."""
    row = score_row(model, tests) | geometry_row(model)
    if recipe.sharpness_every and step % recipe.sharpness_every == 0:
        from headspan.lab.curvature import sharpness_row

        row |= sharpness_row(model, tests.id, recipe.seed)
    return row


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
    variables = {name: (("step", *AXES.get(name, ())), _column(rows, name)) for name in names}
    coordinates = {"step": steps, **_coordinates(recipe)}
    used = {dim for dims, _ in variables.values() for dim in dims}
    dataset = xr.Dataset(
        variables,
        coords={name: values for name, values in coordinates.items() if name in used},
        attrs=_attributes(recipe),
    )
    return dataset.assign(_nulls(recipe))


def _attributes(recipe: Recipe) -> dict[str, str | int | float]:
    own = ("seed", "learning_rate", "batch", "optimizer")
    shape, task = ("positions", "norm", "d_model", "dropout"), ("distribution", "vocabulary")
    return {
        "lens": "lab",
        "headspan_version": __version__,
        "task": recipe.task.kind,
        **{name: getattr(recipe, name) for name in own},
        **{name: getattr(recipe.shape, name) for name in shape},
        **{name: getattr(recipe.task, name) for name in task},
    }


def _column(rows: Sequence[Row], name: str) -> np.ndarray:
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


def _nulls(recipe: Recipe) -> dict[str, tuple[tuple[str, ...], np.ndarray] | float]:
    """Independent random subspaces; even attention; a guess among the tokens."""
    d, ks = recipe.shape.d_model, np.array(sizes(recipe.shape.d_model), dtype=float)
    even = attention_null(recipe.source().test("ood", recipe.test_size))
    shape = LabModel(recipe.shape)
    counts = np.array([sum(shape.get_parameter(n).numel() for n in names) for names in groups(shape).values()])
    return {
        "projection_kernel_null": (("k",), ks / d),
        "top_in_bridge_null": (("k",), ks / d),
        "composition_score_null": d**-0.5,
        "previous_token_null": even["previous_token"],
        "induction_null": even["induction"],
        "accuracy_null": 1.0 / recipe.task.vocabulary,
        "sharpness_share_null": (("group",), counts / counts.sum()),
    }


def write_track(dataset: xr.Dataset, path: Path) -> None:
    """The record as netCDF, whole or not at all."""
    with written_whole(path) as temporary:
        write_netcdf(xr.DataTree(dataset), temporary)


def open_track(path: Path) -> xr.Dataset:
    """A record from its file, in memory."""
    try:
        return read_netcdf(path).to_dataset()
    except HeadspanError as problem:
        raise HeadspanError(f"'{path}' is no record of a lab run: {problem}") from problem


def tracked_lenses() -> tuple[str, ...]:
    """Lenses that follow a run: those of one checkpoint that read weights alone and need no choice of heads."""
    return tuple(
        name
        for name, each in lenses().items()
        if each.subjects == 1 and each.reads_weights_alone and each.in_series and not each.on_request
    )


def lens_series(checkpoints: Mapping[int, Path], names: Sequence[str] | None = None) -> xr.DataTree:
    """Lens results along training.

    Parameters
    ----------
    checkpoints
        Checkpoint folders by step.
    names
        Names of lenses; by default all that follow a run. One that does not apply to these models is left out, with the
        reason in the attributes.

    Returns
    -------
    DataTree
        One node per lens, below it the lens's own nodes, every variable with the axis `step`.
    """
    if not checkpoints:
        raise ArgumentError("checkpoints: a series needs at least one, found none; train with save_every")
    chosen = [lens(name) for name in (tracked_lenses() if names is None else names)]
    found: dict[str, dict[int, Result]] = {}
    attributes: dict[str, str] = {}
    for step, folder in sorted(checkpoints.items()):
        model = open_model(str(folder))
        reasons = model.skip_reasons()
        for each in chosen:
            reason = reasons.get(each.name)
            if reason is not None:
                attributes[f"{each.name}_left_out"] = reason
                continue
            try:
                with one_thread():
                    result = run(each, [model.heads(dtype="float64")], each.series_options, {"progress": False})
            except DegenerateSubspace:
                continue
            found.setdefault(each.name, {})[step] = result
    nodes = {
        f"{name}/{path}".rstrip("/"): node
        for name, by_step in found.items()
        for path, node in nodes_of(along_steps(by_step)).items()
    }
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **nodes})


def write_series(tree: xr.DataTree, path: Path) -> None:
    """Write a series as netCDF, whole or not at all."""
    with written_whole(path) as temporary:
        write_netcdf(tree, temporary)
