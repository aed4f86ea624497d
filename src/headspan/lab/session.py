"""A whole run: train, record, summarise; and the same over several seeds.

`result.json` says how good the model is on large fresh test sets (the record's small ones only follow the curve), when
it learned, and where everything lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xarray as xr

from headspan.errors import HeadspanError
from headspan.lab.dataset import track_dataset, write_track
from headspan.lab.model import LabModel
from headspan.lab.progress_view import View, silent
from headspan.lab.recipe import Recipe
from headspan.lab.run_folder import RunFolder
from headspan.lab.saving import write_json_file
from headspan.lab.scores import measured
from headspan.lab.source import Source
from headspan.lab.trainer import train
from headspan.lab.transition import transition
from headspan.lenses.saving import without_nan
from headspan.statistics import mean_interval
from headspan.threads import one_thread

FINAL_SEQUENCES, FINAL_SEED = 1_000, 2_000_000
LEARNED = 0.9
"""OOD accuracy that counts as having learned the rule."""
ONE_THREAD_WIDTH = 256
"""Up to this d_model a second thread waits more than it works: `smoke` took 55 s of CPU time on two and 31 on one."""
Views = Callable[[str, int], AbstractContextManager[View]]


def no_view(title: str, steps: int) -> AbstractContextManager[View]:
    """Show nothing."""
    return nullcontext(silent)


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
    source, device = Source.of(recipe), torch.device(recipe.device)
    found = {}
    for number, part in enumerate(("id", "ood")):
        generator = torch.Generator().manual_seed(FINAL_SEED + number)
        sequences = source.drawn(FINAL_SEQUENCES, generator, "id" if part == "id" else "ood").to(device)
        found[f"{part}_accuracy"] = measured(model, sequences)["accuracy"]
    return found


def run_once(recipe: Recipe, folder: Path, views: Views = no_view) -> Run:
    """Train, or take a run up again, and write its record and result."""
    files = RunFolder(folder)
    threads = one_thread() if recipe.shape.d_model <= ONE_THREAD_WIDTH else nullcontext()
    with views(f"seed {recipe.seed}", recipe.steps) as view, threads:
        progress = train(recipe, folder, view)
    track = track_dataset(recipe, progress.rows)
    write_track(track, files.track_file)
    at = transition(track["step"].values, track["ood_accuracy"].values)
    result: dict[str, Any] = {
        "schema": "headspan.lab/1",
        "seed": recipe.seed,
        "steps": progress.step,
        **final_accuracies(progress.model, recipe),
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
        result["paths"]["lenses"] = str(_followed_by_lenses(recipe, files))
    result["learned"] = result["ood_accuracy"] > LEARNED
    write_json_file(files.result_file, without_nan(result))
    return Run(recipe, files, progress.model, track, result)


def _followed_by_lenses(recipe: Recipe, files: RunFolder) -> Path:
    """Lens results at every `lenses_every`-th step that was kept, and at the last."""
    from headspan.lab.lens_series import lens_series, write_series

    kept = files.checkpoints()
    chosen = {step: path for step, path in kept.items() if step % recipe.lenses_every == 0 or step == max(kept)}
    write_series(lens_series(chosen), files.lenses_file)
    return files.lenses_file


def run_seeds(
    recipe: Recipe, seeds: Sequence[int], folder: Path, views: Views = no_view
) -> tuple[list[Run], dict[str, Any]]:
    """One run per seed in folders `seed-N`, and how they compare."""
    if not seeds:
        raise HeadspanError("no seed was given; write them like 0..9 or 0,3,5")
    runs = [run_once(recipe.changed(seed=seed), folder / f"seed-{seed}", views) for seed in seeds]
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


def parsed_seeds(text: str) -> list[int]:
    """Seeds from `0..9`, `0,3,5` or both, ascending and each once."""
    seeds: set[int] = set()
    for piece in text.replace(" ", "").split(","):
        first, dots, last = piece.partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise HeadspanError(f"seeds are written like 0..9 or 0,3,5, not {text!r}")
        low, high = int(first), int(last if dots else first)
        if high < low or high - low >= 1_000:
            raise HeadspanError(f"seeds {piece} need to ascend, at most 1000 of them")
        seeds.update(range(low, high + 1))
    return sorted(seeds)
