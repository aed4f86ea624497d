"""The numbers of training runs that claims about learning rest on: of a run at hand, or of those kept in a file.

Training takes minutes, so the ledger keeps what our own runs of two presets gave (`lab_runs.json`, made by
`write_numbers` from their folders). Where a run is given (`--model lab=RUN/model`), it is measured instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.errors import HeadspanError
from headspan.input_files import read_json

if TYPE_CHECKING:
    import xarray as xr

    from headspan.checkpoint import Checkpoint

KEPT = Path(__file__).with_name("lab_runs.json")
SCHEMA = "headspan.lab-numbers/1"
NEEDED = ("transition", "offset", "ablation", "plateau")
"""Experiments that the numbers come from."""
TENTH_TO_NINE_TENTHS = 4.394
"""2 ln 9: widths of a logistic step from a tenth to nine tenths of its height."""
Numbers = dict[str, float]
NAN = float("nan")


def numbers_about(checkpoint: Checkpoint | None) -> list[Numbers]:
    """Numbers of the run a checkpoint belongs to; without one, of the runs that are kept."""
    return kept_numbers() if checkpoint is None else [numbers_of(run_folder(checkpoint))]


def run_folder(checkpoint: Checkpoint) -> Path:
    """The folder of the run that a checkpoint is the model of; refused where it is none."""
    folder = checkpoint.folder
    if folder is None or not (folder.parent / "track.nc").is_file():
        raise HeadspanError(f"'{checkpoint.source}' is no model of a lab run: there is no track.nc beside its folder")
    return folder.parent


@lru_cache(maxsize=4)
def numbers_of(folder: Path) -> Numbers:
    """What the claims need of one run; NaN where the run does not allow it."""
    from headspan.lab.study import study

    return numbers_in(study(folder, NEEDED))


def numbers_in(tree: xr.DataTree) -> Numbers:
    """The same, from what `headspan.lab.study.study` found."""
    track = tree.to_dataset()
    nodes = {name: node.to_dataset(inherit=False) for name, node in tree.children.items()}
    return {
        "seed": float(track.attrs["seed"]),
        **_learning(track, nodes["transition"]),
        **_geometry(track),
        **_offsets(track, nodes.get("offset")),
        **_jobs(nodes.get("ablation")),
        "plateau_curvature": float(nodes["plateau"]["curvature"] + nodes["plateau"]["error"])
        if "plateau" in nodes
        else NAN,
    }


def _learning(track: xr.Dataset, transition: xr.Dataset) -> Numbers:
    order = ("previous-token score of layer 0", "induction score of the last layer")
    first, second = (float(transition["lag"].sel(quantity=name)) for name in order)
    at, width = (float(transition[f"transition_{name}"]) for name in ("step", "width"))
    sharpness = track["hessian_top"].dropna("step").values.tolist() if "hessian_top" in track else []
    return {
        "ood_accuracy": float(track["ood_accuracy"][-1]),
        "transition_step": at,
        "rise_share": TENTH_TO_NINE_TENTHS * width / at,
        "sharpness_growth": sharpness[-1] / sharpness[1] if len(sharpness) > 1 else NAN,
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


def _offsets(track: xr.Dataset, offset: xr.Dataset | None) -> Numbers:
    """How much of layer 0's attention is position alone."""
    if offset is None:
        return {"offset_share": NAN, "shuffled_share": NAN}
    score = float(track["previous_token"].isel(step=-1, layer=0, head=0))
    return {
        "offset_share": float(offset["share"][0]),
        "shuffled_share": float(offset["shuffled_previous_token"][0]) / score,
    }


def _jobs(ablation: xr.Dataset | None) -> Numbers:
    """What is left of OOD accuracy without a subspace, as a share of the whole."""
    sites = {
        "keys_without_bottom": ("bottom", "L1 K"),
        "values_without_medium": ("medium", "L1 V"),
        "embedding_without_bottom": ("bottom", "embedding"),
    }
    if ablation is None:
        return dict.fromkeys(sites, NAN)
    left = ablation["accuracy"] / ablation["accuracy_whole"]
    return {name: float(left.sel(space=space, site=site)) for name, (space, site) in sites.items()}


def kept_numbers() -> list[Numbers]:
    """The numbers of our own runs of all presets, one row per run."""
    return [row for rows in kept_runs().values() for row in rows]


def kept_runs() -> dict[str, list[Numbers]]:
    """The same by preset."""
    kept: dict[str, list[Numbers]] = read_json(KEPT)["runs"]
    return kept


def write_numbers(folders: Mapping[str, Sequence[Path]], path: Path = KEPT) -> None:
    """Measure the runs in some folders, by preset, and keep their numbers."""
    from headspan.lab.run_folder import write_json_file

    rows = {preset: [_rounded(numbers_of(folder)) for folder in those] for preset, those in folders.items()}
    write_json_file(path, {"schema": SCHEMA, "runs": rows})


def _rounded(numbers: Numbers) -> Numbers:
    return {name: round(value, 5) for name, value in numbers.items()}
