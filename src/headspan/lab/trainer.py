"""Training a small model, recorded, and stopped or resumed anywhere.

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
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from headspan.errors import HeadspanError
from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe
from headspan.lab.record import Row, record_row
from headspan.lab.run_folder import Progress, RunFolder
from headspan.lab.scores import accuracy, next_token_loss
from headspan.lab.sequences import Sequences, Source, Tests
from headspan.progress import Step, show_nothing

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


def optimizer_of(recipe: Recipe, model: LabModel) -> torch.optim.Optimizer:
    """AdamW, or SGD with momentum; weight decay on every parameter, as published."""
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
    return torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=recipe.betas,
        eps=recipe.eps,
        weight_decay=recipe.weight_decay,
        fused=True,
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
    if run is None or not run.load_state(progress):
        progress.rows.append(_row(progress, recipe, tests, measure, {}))
        _keep(run, progress, recipe)
    while progress.step < recipe.steps and not _is_learned(recipe, progress.rows):
        loss, batch, logits = train_step(recipe, source, progress)
        _check_finite(loss.item(), progress, folder)
        if progress.step % recipe.track_every == 0 or progress.step == recipe.steps:
            trained = _training_scores(loss, batch, logits, progress)
            progress.rows.append(_row(progress, recipe, tests, measure, trained))
            _keep(run, progress, recipe)
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


def _keep(run: RunFolder | None, progress: Progress, recipe: Recipe) -> None:
    if run is None:
        return
    if progress.step % recipe.save_every == 0 or progress.step == recipe.steps:
        run.keep_checkpoint(progress.model, progress.step)
    run.save_state(progress)


def _is_learned(recipe: Recipe, rows: list[Row]) -> bool:
    """Whether the last rows are good enough to stop; the record is not looked at where that is not asked for."""
    if not recipe.stop_when_learned or len(rows) < LEARNED_ROWS:
        return False
    return all(
        float(row["id_accuracy"]) > LEARNED_ID and float(row["ood_accuracy"]) > LEARNED_OOD
        for row in rows[-LEARNED_ROWS:]
    )
