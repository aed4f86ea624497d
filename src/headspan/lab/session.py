"""A whole run: train, record, summarize; and the same over several seeds.

`result.json` says how good the model is on large fresh test sets (the record's small ones only follow the curve), when
it learned, and where everything is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xarray as xr

from headspan.errors import ArgumentError
from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe
from headspan.lab.record import track_dataset, write_track
from headspan.lab.run_folder import RunFolder, write_json_file
from headspan.lab.scores import loss_and_accuracy
from headspan.lab.sequences import Part
from headspan.lab.study import transition
from headspan.lab.trainer import train
from headspan.progress import progress_bar
from headspan.statistics import mean_interval
from headspan.storage import without_nan
from headspan.threads import one_thread

FINAL_SEQUENCES, FINAL_SEED = 1_000, 2_000_000
LEARNED = 0.9
"""OOD accuracy that counts as having learned the rule."""
ONE_THREAD_WIDTH = 256
"""Up to this d_model a second thread waits more than it works: `smoke` took 55 s of CPU time on two and 31 on one."""


@dataclass(frozen=True)
class Run:
    """A finished run."""

    recipe: Recipe
    folder: RunFolder
    model: LabModel
    track: xr.Dataset
    result: dict[str, Any]


def final_accuracies(model: LabModel, recipe: Recipe) -> dict[str, float]:
    """Accuracy on large test sets that no other measurement uses, ID and OOD, each in [0, 1]."""
    source, device = recipe.source(), torch.device(recipe.device)
    found = {}
    parts: tuple[Part, ...] = ("id", "ood")
    for number, part in enumerate(parts):
        generator = torch.Generator().manual_seed(FINAL_SEED + number)
        sequences = source.draw(FINAL_SEQUENCES, generator, part).to(device)
        found[f"{part}_accuracy"] = loss_and_accuracy(model, sequences)["accuracy"]
    return found


def run_once(recipe: Recipe, folder: Path, progress: bool = False) -> Run:
    """Train, or resume a run, and write its record and result; with `progress`, a bar is shown if someone watches."""
    files = RunFolder(folder)
    threads = one_thread() if recipe.shape.d_model <= ONE_THREAD_WIDTH else nullcontext()
    with progress_bar(recipe.steps, f"seed {recipe.seed}", shown=progress) as step, threads:
        end = train(recipe, folder, step)
    track = track_dataset(recipe, end.rows)
    write_track(track, files.track_file)
    at = transition(track["step"].values, track["ood_accuracy"].values)
    result: dict[str, Any] = {
        "schema": "headspan.lab/1",
        "seed": recipe.seed,
        "steps": end.step,
        **final_accuracies(end.model, recipe),
        "transition_step": at.step,
        "transition_low": at.low,
        "transition_high": at.high,
        "paths": {
            "run": str(folder),
            "model": str(files.model_folder),
            "track": str(files.track_file),
            "checkpoints": [str(path) for path in files.checkpoints().values()],
        },
    }
    if recipe.lenses_every:
        result["paths"]["lenses"] = str(_write_lens_series(recipe, files))
    result["learned"] = result["ood_accuracy"] > LEARNED
    write_json_file(files.result_file, without_nan(result))
    return Run(recipe, files, end.model, track, result)


def _write_lens_series(recipe: Recipe, files: RunFolder) -> Path:
    """Lens results at every `lenses_every`-th step that was kept, and at the last."""
    from headspan.lab.record import lens_series, write_series

    kept = files.checkpoints()
    chosen = {step: path for step, path in kept.items() if step % recipe.lenses_every == 0 or step == max(kept)}
    write_series(lens_series(chosen), files.lenses_file)
    return files.lenses_file


def run_seeds(
    recipe: Recipe, seeds: Sequence[int], folder: Path, progress: bool = False
) -> tuple[list[Run], dict[str, Any]]:
    """One run per seed in folders `seed-N`, and how they compare."""
    if not seeds:
        raise ArgumentError("no seed was given; write them like 0..9 or 0,3,5")
    runs = [run_once(recipe.with_settings(seed=seed), folder / f"seed-{seed}", progress) for seed in seeds]
    return runs, seeds_summary([run.result for run in runs])


def seeds_summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Success rate over seeds; mean, 95 % interval of the mean, least and most of accuracies and transition."""
    spread = {}
    for name in ("id_accuracy", "ood_accuracy", "transition_step"):
        values = [result[name] for result in results if result[name] == result[name]]
        mean, low, high = mean_interval(values)
        ends = (min(values), max(values)) if values else (float("nan"),) * 2
        spread[name] = {"mean": mean, "low": low, "high": high, "least": ends[0], "most": ends[1]}
    document: dict[str, Any] = without_nan(
        {
            "schema": "headspan.lab-seeds/1",
            "seeds": [result["seed"] for result in results],
            "success_rate": sum(bool(result["learned"]) for result in results) / len(results),
            **spread,
            "runs": list(results),
        }
    )
    return document


def parse_seeds(text: str) -> list[int]:
    """Seeds from `0..9`, `0,3,5` or both, ascending and each once."""
    seeds: set[int] = set()
    for piece in text.replace(" ", "").split(","):
        first, dots, last = piece.partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise ArgumentError(f"seeds are written like 0..9 or 0,3,5, not {text!r}")
        low, high = int(first), int(last if dots else first)
        if high < low or high - low >= 1_000:
            raise ArgumentError(f"seeds {piece} need to ascend, at most 1000 of them")
        seeds.update(range(low, high + 1))
    return sorted(seeds)
