"""A whole run: train, record, summarize; and the same over several seeds.

`result.json` says how good the model is on large fresh test sets (the record's small ones only follow the curve), when
it learned, and where everything is stored.

Training a small model, recorded, and stopped or resumed anywhere.

1. Weights, data and dropout each draw from a generator of their own, derived from the seed.
2. Every `track_every` steps (and before the first) a row is recorded: scores on both test sets, attention scores,
   geometry, and every `sharpness_every` steps the Hessian's eigenvalues. Measuring draws nothing from the run's
   generators.
3. Every row's state is kept whole in one file. A killed run goes on from there and, on one thread, gives the same
   bytes.
4. A loss that is not a number ends the run; the last good state stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from headspan.errors import ArgumentError, HeadspanError
from headspan.lab.model import LabModel
from headspan.lab.optimizers import optimizer_of
from headspan.lab.recipe import Recipe
from headspan.lab.record import Row, record_row, track_dataset, write_track
from headspan.lab.run_folder import Progress, RunFolder, write_json_file
from headspan.lab.scores import accuracy, loss_and_accuracy, next_token_loss
from headspan.lab.sequences import Sequences
from headspan.lab.source import Part, Source, Tests
from headspan.lab.study import transition
from headspan.progress import Step, progress_bar, show_nothing
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


LEARNED_ID, LEARNED_OOD, LEARNED_ROWS = 0.965, 0.945, 3
DATA_STREAM, DROPOUT_STREAM = 2**33, 2**34
"""Offsets that keep the generators of one seed, and those of different seeds, apart."""


class Diverged(HeadspanError):
    """The loss is not a number any more."""


Measure = Callable[[LabModel, Recipe, Tests, int], Row]


def initial_progress(recipe: Recipe) -> Progress:
    """A run at step 0: weights, optimizer and generators from the seed."""
    try:
        model = LabModel(recipe.shape, recipe.seed).to(torch.device(recipe.device))
    except (RuntimeError, AssertionError) as problem:
        raise HeadspanError(
            f"device {recipe.device!r} cannot be used; use cpu, or cuda where there is one"
        ) from problem
    return Progress(
        step=0,
        model=model,
        optimizer=optimizer_of(recipe, model),
        data=torch.Generator().manual_seed(recipe.seed + DATA_STREAM),
        dropout=torch.Generator().manual_seed(recipe.seed + DROPOUT_STREAM),
        rows=[],
    )


def train_step(recipe: Recipe, source: Source, progress: Progress) -> tuple[torch.Tensor, Sequences, torch.Tensor]:
    """One batch, one update; returns the loss before it, the batch and its logits."""
    batch = source.draw(recipe.batch, progress.data).to(torch.device(recipe.device))
    logits = progress.model(batch.tokens, progress.dropout)
    loss = next_token_loss(logits, batch)
    for group in progress.optimizer.param_groups:
        group["lr"] = recipe.rate(progress.step)
    progress.optimizer.zero_grad()
    torch.autograd.backward(loss)
    progress.optimizer.step()
    progress.step += 1
    return loss, batch, logits


def train(
    recipe: Recipe, folder: Path | None = None, step: Step = show_nothing, measure: Measure = record_row
) -> Progress:
    """Train to the end, from the folder's kept state where there is one.

    Parameters
    ----------
    recipe
        What to train.
    folder
        Where state, checkpoints and model are kept; None keeps nothing.
    step
        Told after every update how far the run is, and the last recorded loss and accuracies.
    measure
        Makes a row of the record.

    Returns
    -------
    Progress
        The finished run; `rows` is its record. `Diverged` is raised if the loss becomes NaN or infinite.
    """
    source, progress = recipe.source(), initial_progress(recipe)
    tests = source.tests(recipe.test_size, recipe.device)
    run = None if folder is None else RunFolder.claim(folder, recipe)
    with nullcontext() if run is None else run.writing(recipe):
        return _trained(recipe, run, source, tests, progress, step, measure)


def _trained(
    recipe: Recipe,
    run: RunFolder | None,
    source: Source,
    tests: Tests,
    progress: Progress,
    step: Step,
    measure: Measure,
) -> Progress:
    if run is None or not run.load_state(progress):
        progress.rows.append(_row(progress, recipe, tests, measure, {}))
        if run is not None:
            run.keep_checkpoint(progress.model, 0)
            run.save_state(progress)
    while progress.step < recipe.steps and not _is_learned(recipe, progress.rows):
        loss, batch, logits = train_step(recipe, source, progress)
        _check_finite(loss.item(), progress, None if run is None else run.path)
        if run is not None and recipe.is_kept(progress.step):
            run.keep_checkpoint(progress.model, progress.step)
        if progress.step % recipe.track_every == 0 or progress.step == recipe.steps:
            trained = _training_scores(loss, batch, logits, progress)
            progress.rows.append(_row(progress, recipe, tests, measure, trained))
            if run is not None:
                run.save_state(progress)
        step(_last_numbers(progress.rows[-1]), done=progress.step)
    if run is not None:
        run.save_model(progress.model, progress.step)
    return progress


def _last_numbers(row: Row) -> str:
    shown = {"loss": "train_loss", "ID": "id_accuracy", "OOD": "ood_accuracy"}
    return "  ".join(f"{label} {float(row[name]):.3f}" for label, name in shown.items() if name in row)


def _check_finite(loss: float, progress: Progress, folder: Path | None) -> None:
    if not math.isfinite(loss):
        kept = f"; the last good state (step {progress.rows[-1]['step']:.0f}) is in '{folder}'" if folder else ""
        raise Diverged(f"the loss is {loss} at step {progress.step}: lower the learning rate{kept}")


def _training_scores(loss: torch.Tensor, batch: Sequences, logits: torch.Tensor, progress: Progress) -> Row:
    """Loss, accuracy and gradient norm of the last batch."""
    squares = [p.grad.double().square().sum() for p in progress.model.parameters() if p.grad is not None]
    norm = float(torch.stack(squares).sum().sqrt())
    numbers = {"train_loss": loss.item(), "train_accuracy": accuracy(logits.detach(), batch), "gradient_norm": norm}
    return {name: np.array(number) for name, number in numbers.items()}


def _row(progress: Progress, recipe: Recipe, tests: Tests, measure: Measure, trained: Row) -> Row:
    nothing = {name: np.array(np.nan) for name in ("train_loss", "train_accuracy", "gradient_norm")}
    row = {"step": np.array(float(progress.step)), **nothing, **trained}
    return row | measure(progress.model, recipe, tests, progress.step)


def _is_learned(recipe: Recipe, rows: list[Row]) -> bool:
    """Whether the last rows are good enough to stop; the record is not looked at where that is not asked for."""
    if not recipe.stop_when_learned or len(rows) < LEARNED_ROWS:
        return False
    return all(
        float(row["id_accuracy"]) > LEARNED_ID and float(row["ood_accuracy"]) > LEARNED_OOD
        for row in rows[-LEARNED_ROWS:]
    )
