"""Document 004, orthogonal subspaces in a small copying transformer: tried on training runs, ours or a given one.

The numbers of training runs that claims about learning rest on: of a run at hand, or of those kept in a file.

Training takes minutes, so the ledger keeps what our own runs of two presets gave (`lab_runs.json`, made by
`write_numbers` from their folders). Where a run is given (`--model lab=RUN/model`), it is measured instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from headspan.errors import HeadspanError
from headspan.input_files import read_json
from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, evidence, mean_is
from headspan.subspaces import kernel_null_mean, orthonormal_basis, principal_angles, projection_kernel

if TYPE_CHECKING:
    import xarray as xr

    from headspan.checkpoint import Checkpoint
    from headspan.lab.study import Bench


@check("S4.1")
def bridge_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    d, k, r = 64, 35, 6
    middle, bridges = orthonormal_basis(draws.normal(1, d, k)), orthonormal_basis(draws.normal(400, d, r))
    random = projection_kernel(middle, bridges)[0] / r
    runs = numbers_about(run)
    return evidence(
        mean_is("share of a random bridge in the middle", random, kernel_null_mean(k, r, d) / r),
        at_most("largest p-value of a gap", _most(runs, "gap_p_value"), 0.001),
        at_least("least ratio of first to second value", _least(runs, "top_ratio"), 1.2),
        at_most("most of the middle beyond the null", _most(runs, "medium_excess"), -0.15),
        at_least("least of the bottom beyond the null", _least(runs, "bottom_excess"), 0.15),
        figures={
            "runs": len(runs),
            "least share of medium values": _least(runs, "medium_share"),
            "largest share of medium values": _most(runs, "medium_share"),
            "least of top in the bridge beyond the null": _least(runs, "top_in_bridge_excess"),
        },
    )


@check("S4.2")
def sides_of_bridge(draws: Draws) -> Evidence:
    W_q, W_k = draws.normal(64, 8), draws.normal(64, 8)
    U, _, Vh = torch.linalg.svd(W_q @ W_k.T)
    right = principal_angles(orthonormal_basis(Vh[:5].T.contiguous()), orthonormal_basis(W_k))
    left = principal_angles(orthonormal_basis(U[:, :5].contiguous()), orthonormal_basis(W_q))
    return evidence(
        at_most("largest angle of the right side to W_k", right.max(), 1e-10),
        at_most("largest angle of the left side to W_q", left.max(), 1e-10),
    )


@check("S4.3")
def learning_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return evidence(
        at_least("least accuracy out of distribution", _least(runs, "ood_accuracy"), 0.9),
        at_most("longest rise, as a share of the time before it", _most(runs, "rise_share"), 0.5),
        at_least("least growth of the largest Hessian eigenvalue", _least(runs, "sharpness_growth"), 1.5),
        at_least(
            "fewest steps of the previous-token head before the induction head",
            _least(runs, "previous_before_induction"),
            0.0,
        ),
        figures={"runs": len(runs), "first transition": _least(runs, "transition_step")},
    )


@check("S4.4")
def offsets_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return evidence(
        at_least("least variance of its logits due to the offset", _least(runs, "offset_share"), 0.5),
        at_least("least share of its score with tokens shuffled", _least(runs, "shuffled_share"), 0.8),
    )


@check("S4.5")
def jobs_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return evidence(
        at_most("most that is left without bottom in layer 1's keys", _most(runs, "keys_without_bottom"), 0.5),
        at_most("most that is left without medium in layer 1's values", _most(runs, "values_without_medium"), 0.5),
        at_least("least that is left without bottom in the embedding", _least(runs, "embedding_without_bottom"), 0.8),
    )


@check("S4.6")
def saddle_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return evidence(at_most("largest of the smallest eigenvalues", _most(runs, "plateau_curvature"), 0.0))


def _least(runs: list[Numbers], name: str) -> float:
    return float(np.min([row[name] for row in runs]))  # NaN, which a trial refuses, is not passed over


def _most(runs: list[Numbers], name: str) -> float:
    return float(np.max([row[name] for row in runs]))


KEPT = Path(__file__).with_name("lab_runs.json")
SCHEMA = "headspan.lab-numbers/1"
TENTH_TO_NINE_TENTHS = 4.394
"""2 ln 9: widths of a logistic step from a tenth to nine tenths of its height."""
Numbers = dict[str, float]


def numbers_about(checkpoint: Checkpoint | None) -> list[Numbers]:
    """Numbers of the run a checkpoint belongs to; without one, of the runs that are kept."""
    if checkpoint is None:
        return kept_numbers()
    folder = checkpoint.folder
    if folder is None or not (folder.parent / "track.nc").is_file():
        raise HeadspanError(f"'{checkpoint.source}' is no model of a lab run: there is no track.nc beside its folder")
    return [numbers_of(folder.parent)]


@lru_cache(maxsize=4)
def numbers_of(folder: Path) -> Numbers:
    """What the claims need of one run; NaN where the run does not allow it."""
    from headspan.lab.study import Bench

    bench = Bench.of(folder)
    return {"seed": float(bench.recipe.seed), **_learning(bench), **_geometry(bench.track), **_experiments(bench)}


def _learning(bench: Bench) -> Numbers:
    from headspan.lab.study import lag, quantity_curves

    track, at = bench.track, bench.at
    step, curves = track["step"].values, quantity_curves(track)
    order = ("previous-token score of layer 0", "induction score of the last layer")
    first, second = (lag(step, curves[name], at) for name in order)
    sharpness = track["hessian_top"].dropna("step").values if "hessian_top" in track else [float("nan")] * 2
    return {
        "ood_accuracy": float(track["ood_accuracy"][-1]),
        "transition_step": at.step,
        "rise_share": TENTH_TO_NINE_TENTHS * at.width / at.step,
        "sharpness_growth": float(sharpness[-1] / sharpness[1]) if len(sharpness) > 1 else float("nan"),
        "previous_before_induction": second - first,
    }


def _geometry(track: xr.Dataset) -> Numbers:
    """The split of the embedding's spectrum at the end, and the bridge's energy in its parts less the null value."""
    last, d = track.isel(step=-1), int(track.attrs["d_model"])
    values, energy = last["embedding_singular_value"].values, last["bridge_energy"].isel(k=1)
    excess = energy - last["bridge_energy_null"]
    return {
        "gap_p_value": float(last["gap_p_value"]),
        "top_ratio": float(values[0] / values[1]),
        "medium_share": float(last["medium_size"]) / d,
        "medium_excess": float(excess.sel(part="medium")),
        "bottom_excess": float(excess.sel(part="bottom")),
        "top_in_bridge_excess": float(last["top_in_bridge"][1] - last["top_in_bridge_null"][1]),
    }


def _experiments(bench: Bench) -> Numbers:
    """What perturbing the model shows, where the run has what it takes."""
    from headspan.lab.study import EXPERIMENTS

    found = dict.fromkeys(("offset_share", "shuffled_share", "keys_without_bottom", "values_without_medium",
                           "embedding_without_bottom", "plateau_curvature"), float("nan"))  # fmt: skip
    try:
        offset, table, plateau = (EXPERIMENTS[name](bench) for name in ("offset", "ablation", "plateau"))
    except HeadspanError:
        return found
    accuracy, whole = table["accuracy"], float(table["accuracy_whole"])
    score = float(bench.track["previous_token"].isel(step=-1, layer=0, head=0))
    return {
        "offset_share": float(offset["share"][0]),
        "shuffled_share": float(offset["shuffled_previous_token"][0]) / score,
        "keys_without_bottom": float(accuracy.sel(space="bottom", site="L1 K")) / whole,
        "values_without_medium": float(accuracy.sel(space="medium", site="L1 V")) / whole,
        "embedding_without_bottom": float(accuracy.sel(space="bottom", site="embedding")) / whole,
        "plateau_curvature": float(plateau["curvature"] + plateau["error"]),
    }


def kept_numbers() -> list[Numbers]:
    """The numbers of our own runs of all presets, one row per run."""
    kept: dict[str, list[Numbers]] = read_json(KEPT)["runs"]
    return [row for rows in kept.values() for row in rows]


def write_numbers(folders: Mapping[str, Sequence[Path]], path: Path = KEPT) -> None:
    """Measure the runs in some folders, by preset, and keep their numbers."""
    from headspan.lab.run_folder import write_json_file

    rows = {preset: [_rounded(numbers_of(folder)) for folder in those] for preset, those in folders.items()}
    write_json_file(path, {"schema": SCHEMA, "runs": rows})


def _rounded(numbers: Numbers) -> Numbers:
    return {name: round(value, 5) for name, value in numbers.items()}
