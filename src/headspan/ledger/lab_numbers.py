"""The numbers of training runs that claims about learning rest on: of a run at hand, or of those kept in a file.

Training takes minutes, so the ledger keeps what our own runs of two presets gave (`lab_runs.json`, made by
`write_numbers` from their folders). Where a run is given (`--model lab=RUN/model`), it is measured instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.errors import HeadspanError

if TYPE_CHECKING:
    import xarray as xr

    from headspan.checkpoint import Checkpoint
    from headspan.lab.study import Bench

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
    from headspan.lab.study import quantity_curves
    from headspan.lab.transition import lag

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
    kept: dict[str, list[Numbers]] = json.loads(KEPT.read_text(encoding="utf-8"))["runs"]
    return [row for rows in kept.values() for row in rows]


def write_numbers(folders: Mapping[str, Sequence[Path]], path: Path = KEPT) -> None:
    """Measure the runs in some folders, by preset, and keep their numbers."""
    from headspan.lab.run_folder import write_json_file

    rows = {preset: [_rounded(numbers_of(folder)) for folder in those] for preset, those in folders.items()}
    write_json_file(path, {"schema": SCHEMA, "runs": rows})


def _rounded(numbers: Numbers) -> Numbers:
    return {name: round(value, 5) for name, value in numbers.items()}
