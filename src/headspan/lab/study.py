"""Everything that is asked of a finished run, as one tree: its record, and what perturbing the model shows.

Nodes: the root is the record (dim `step`); `transition` its change point with lags; the others are the experiments of
`EXPERIMENTS`, and `study_<name>` those that were asked for by name and kept (`studies`). An experiment that a
run does not allow (no gap, one layer, no checkpoint on the plateau) is left out, and the root says why in
`<name>_left_out`.

When a model learns: the change point of its OOD accuracy, and what moves before or after it.

Lead or lag of a quantity is its own tau less that of OOD accuracy, both fitted up to shortly after the transition,
since several quantities turn round later. Negative: it moves first. Sharpness is measured too seldom for a fit; for it
the half-way point between its value before and its last one is taken (`halfway`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from headspan.errors import HeadspanError
from headspan.lab.ablation import ablation_table, named_bases, sites, swap_scores
from headspan.lab.curvature import LossSurface
from headspan.lab.geometry import part_energy
from headspan.lab.landscape import (
    group_sensitivity,
    interpolation,
    loss_along,
    plateau_at,
    sharpest_direction,
    subspace_sensitivity,
)
from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe
from headspan.lab.record import open_track
from headspan.lab.run_folder import RunFolder, open_model
from headspan.lab.scores import layer_offset_shares, length_generalization, shuffled_previous_token
from headspan.lab.sequences import Sequences
from headspan.lab.task import marginal_accuracy, marginal_losses
from headspan.statistics.change_points import DRAWS, NONE, ChangePoint, change_point
from headspan.statistics.intervals import mean_interval

DISTANCES = (-2.0, -1.0, -0.5, -0.25, -0.1, -0.02, 0.0, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0)
STRETCHES = (1.0, 1.5, 2.0, 3.0)
TEST_SIZE, FEW_DRAWS = 64, 3
Experiment = Callable[["Bench"], xr.Dataset]


@dataclass(frozen=True)
class Bench:
    """A finished run, ready for experiments."""

    recipe: Recipe
    track: xr.Dataset
    after: LabModel
    checkpoints: dict[int, Path]
    id: Sequences
    ood: Sequences
    at: ChangePoint

    @classmethod
    def of(cls, folder: Path) -> Bench:
        """Open a run's folder."""
        files = RunFolder(folder)
        recipe, track = files.recipe(), open_track(files.track_file)
        at = transition(track["step"].values, track["ood_accuracy"].values)
        tests, model = recipe.source().tests(TEST_SIZE, "cpu"), open_model(files.model_folder)
        return cls(recipe, track, model, files.checkpoints(), tests.id, tests.ood, at)

    def before(self) -> LabModel:
        """The last kept model from well before the transition."""
        return open_model(self.checkpoints[self.plateau_step()])

    def plateau_step(self) -> int:
        """The last kept step well before the transition: at most nine tenths of the way, and trained at all."""
        if not self.at.found:
            raise HeadspanError("the run has no transition to look before; train longer")
        latest = min(0.9 * self.at.step, self.at.step - 3 * self.at.width)
        early = [step for step in self.checkpoints if 0 < step <= latest]
        if not early:
            raise HeadspanError(f"no checkpoint was kept before step {self.at.step:.0f}; use a smaller save_every")
        return early[-1]


def study(folder: Path, experiments: Sequence[str] = ()) -> xr.DataTree:
    """All experiments on the run in a folder, or those named."""
    bench = Bench.of(folder)
    nodes: dict[str, xr.Dataset] = {}
    left_out: dict[str, str] = {}
    for name in experiments or EXPERIMENTS:
        try:
            nodes[name] = EXPERIMENTS[name](bench)
        except HeadspanError as reason:
            left_out[f"{name}_left_out"] = str(reason)
    return xr.DataTree.from_dict({"/": bench.track.assign_attrs(left_out), **nodes, **kept_studies(folder)})


def study_file(folder: Path, name: str) -> Path:
    """Where a study asked for by name is kept in a run's folder."""
    return folder / f"study-{name}.nc"


def kept_studies(folder: Path) -> dict[str, xr.Dataset]:
    """Studies that lie in a run's folder, as `study_<name>`."""
    found = sorted(folder.glob(study_file(folder, "*").name))
    return {file.stem.replace("-", "_", 1): open_track(file) for file in found}


def final_sizes(track: xr.Dataset) -> tuple[int, int] | None:
    """Sizes of top and medium at the last row with a gap; None for a run without one."""
    known = track["medium_size"].dropna("step")
    return (1, int(known[-1])) if len(known) else None


def quantity_curves(track: xr.Dataset) -> dict[str, np.ndarray]:
    """The curves whose lead or lag is asked for, each [step]."""
    k = int(track["k"][1])
    curves = {
        "previous-token score of layer 0": track["previous_token"].sel(layer=0).max("head").values,
        "induction score of the last layer": track["induction"].isel(layer=-1).max("head").values,
        "ID accuracy": track["id_accuracy"].values,
        "train loss": track["train_loss"].values,
    }
    if track.sizes["layer"] > 1:
        kernel = track["projection_kernel"].sel(k=k)
        for role in ("Q", "K", "V"):
            curves[f"kernel O of layer 0, {role} of layer 1"] = kernel.sel(reader=role).values
        curves["composition score with K"] = track["composition_score"].sel(reader="K").values
        curves["top direction in the bridge"] = track["top_in_bridge"].sel(k=k).values
        sizes = final_sizes(track)
        if sizes is not None:
            energy = part_energy(track["bridge_profile"].sel(k=k).values, *sizes)
            curves |= {"bridge energy in medium": energy[:, 1], "bridge energy in bottom": energy[:, 2]}
    return curves


def _transition(bench: Bench) -> xr.Dataset:
    at, step = bench.at, bench.track["step"].values
    curves = quantity_curves(bench.track)
    lags = {name: lag(step, values, at) for name, values in curves.items()}
    if "hessian_top" in bench.track:
        lags["sharpness"] = halfway(step, bench.track["hessian_top"].values, at)
    numbers = {name: getattr(at, name) for name in ("step", "low", "high", "width", "before", "after")}
    return xr.Dataset(
        {f"transition_{name}": value for name, value in numbers.items()}
        | {"lag": (("quantity",), list(lags.values()))},
        coords={"quantity": list(lags)},
    )


def _ablation(bench: Bench) -> xr.Dataset:
    return ablation_table(bench.after, bench.ood, bench.recipe.seed)


def _sensitivity(bench: Bench) -> xr.Dataset:
    surface = LossSurface.of(bench.after, bench.id)
    found = group_sensitivity(surface, bench.recipe.seed)
    sharpest = sharpest_direction(surface, bench.recipe.seed)
    return xr.Dataset(
        {
            **_rises(("group",), list(found.values())),
            "loss_along": (("distance",), loss_along(surface, sharpest, DISTANCES)),
            "eigenvalue": float(sharpest @ surface.hessian_product()(sharpest)),
        },
        coords={"group": list(found), "distance": list(DISTANCES)},
    )


def _subspace_sensitivity(bench: Bench) -> xr.Dataset:
    surface, bases = LossSurface.of(bench.after, bench.id), named_bases(bench.after)
    places = sites(bench.recipe.shape.layers)
    seed = bench.recipe.seed
    found = [[subspace_sensitivity(surface, site, U, seed, FEW_DRAWS) for site in places] for U in bases.values()]
    coords = {"space": list(bases), "site": [str(site) for site in places]}
    return xr.Dataset(_rises(("space", "site"), found), coords=coords)


def _rises(dims: tuple[str, ...], pairs: Sequence[object]) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Rises of the loss and their errors from nested lists of pairs of both."""
    values = np.array(pairs)
    return {"rise": (dims, values[..., 0]), "rise_error": (dims, values[..., 1])}


def _path(bench: Bench) -> xr.Dataset:
    places, losses, barrier = interpolation(LossSurface.of(bench.before(), bench.id), bench.after)
    return xr.Dataset({"loss": (("place",), losses), "barrier": barrier}, coords={"place": places})


def _swap(bench: Bench) -> xr.Dataset:
    found = swap_scores(bench.before(), bench.after, bench.ood)
    names = list(next(iter(found.values())))
    return xr.Dataset(
        {name: (("mixture",), [scores[name] for scores in found.values()]) for name in names},
        coords={"mixture": list(found)},
    )


def _offset(bench: Bench) -> xr.Dataset:
    shares = layer_offset_shares(bench.after, bench.ood)
    shuffled = shuffled_previous_token(bench.after, bench.ood, torch.Generator().manual_seed(bench.recipe.seed))
    return xr.Dataset(
        {
            "share": (("head",), [share for share, _ in shares]),
            "share_null": shares[0][1],
            "shuffled_previous_token": (("head",), shuffled.numpy()),
        }
    )


def _plateau(bench: Bench) -> xr.Dataset:
    found = plateau_at(LossSurface.of(bench.before(), bench.id), bench.recipe.seed)
    names = ("gradient_norm", "curvature", "error", "top", "fall")
    return xr.Dataset({name: getattr(found, name) for name in names} | {"saddle": float(found.saddle)})


def _lengths(bench: Bench) -> xr.Dataset:
    task = bench.recipe.task
    found = length_generalization(bench.after, task, [int(stretch * task.length) for stretch in STRETCHES])
    return xr.Dataset({"accuracy": (("length",), list(found.values()))}, coords={"length": list(found)})


def _marginal(bench: Bench) -> xr.Dataset:
    losses, accuracies = marginal_losses(bench.recipe.task), marginal_accuracy(bench.recipe.task)
    return xr.Dataset(
        {f"{name}_loss": value for name, value in losses.items()}
        | {f"{name}_accuracy": value for name, value in accuracies.items()}
    )


EXPERIMENTS: dict[str, Experiment] = {
    "transition": _transition,
    "ablation": _ablation,
    "sensitivity": _sensitivity,
    "subspace_sensitivity": _subspace_sensitivity,
    "path": _path,
    "swap": _swap,
    "offset": _offset,
    "plateau": _plateau,
    "lengths": _lengths,
    "marginal": _marginal,
}


WIDTHS_AFTER, ROWS_AFTER = 5.0, 4
LEAST_RISE = 0.3


def transition(step: np.ndarray, ood_accuracy: np.ndarray, seed: int = 0, draws: int = DRAWS) -> ChangePoint:
    """The change point of OOD accuracy; none where accuracy never rises by 0.3, whatever the curve's shape."""
    if np.nanmax(ood_accuracy) - np.nanmin(ood_accuracy) < LEAST_RISE:
        return NONE
    return change_point(step, ood_accuracy, seed, draws)


def lag(step: np.ndarray, values: np.ndarray, at: ChangePoint) -> float:
    """Steps from the transition to the quantity's own change point, up to shortly after it; negative if it comes first.

    NaN where there is no transition or the quantity takes no step by then.
    """
    t = np.asarray(step, dtype=float)
    if not at.found:
        return float("nan")
    last = int(np.searchsorted(t, at.step + WIDTHS_AFTER * at.width)) + ROWS_AFTER
    own = change_point(t[:last], np.asarray(values, dtype=float)[:last], draws=0)
    return own.step - at.step


def halfway(step: np.ndarray, values: np.ndarray, at: ChangePoint) -> float:
    """Steps from the transition to where a curve has gone half its way, for one with too few rows to be fitted.

    The way leads from its last row before the transition to its last of all, in straight lines between rows; so the
    answer is good to about the distance of two rows. NaN without a transition, without a row on either side of it, or
    for a curve that ends within a tenth of where it was.
    """
    t, y = np.asarray(step, dtype=float), np.asarray(values, dtype=float)
    known = np.isfinite(y)
    t, y = t[known], y[known]
    early = np.flatnonzero(t <= at.step)
    if not at.found or not len(early) or early[-1] == len(t) - 1:
        return float("nan")
    start = early[-1]
    if abs(y[-1] - y[start]) < 0.1 * abs(y[start]):
        return float("nan")
    gone = (y[start:] - y[start]) / (y[-1] - y[start])
    after = int(np.argmax(gone >= 0.5))
    return float(np.interp(0.5, gone[after - 1 : after + 1], t[start + after - 1 : start + after + 1])) - at.step


def lags_over_seeds(lags: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float, float]]:
    """For each quantity, the mean lag over seeds and its interval."""
    if not lags:
        raise HeadspanError("lags over seeds need at least one run, found none")
    return {name: mean_interval([one[name] for one in lags]) for name in lags[0]}
