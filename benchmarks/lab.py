"""What watching costs: a tracked run against the bare loop of data, model and optimizer; and the smoke preset.

Both loops run in one process, in turns, on the same recipe; CPU time on one thread. Sharpness and lenses have intervals
of their own and are timed on their own. The smoke preset is timed as a command, from starting Python to its last file;
beside it stands the bare loop of as many steps, since CPU time itself grows on a busy machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import run
from tempfile import TemporaryDirectory
from time import process_time

import torch

from headspan.lab.curvature import sharpness_row
from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe, preset
from headspan.lab.record import lens_series, record_row, write_series
from headspan.lab.run_folder import save_model
from headspan.lab.session import initial_progress, train, train_step

MOST, TURNS = 1.3, 3
SMOKE_SECONDS = 20.0


def bare_seconds(recipe: Recipe) -> float:
    """The loop alone."""
    source, progress = recipe.source(), initial_progress(recipe)
    start = process_time()
    while progress.step < recipe.steps:
        train_step(recipe, source, progress)
    return process_time() - start


def tracked_seconds(recipe: Recipe) -> float:
    """The loop with its record."""
    start = process_time()
    train(recipe)
    return process_time() - start


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    for name in ("default", "smoke"):
        recipe = preset(name)
        recipe = recipe.with_settings(steps=2 * recipe.track_every, cooldown=0, sharpness_every=0)
        model, tests = initial_progress(recipe).model, recipe.source().tests(recipe.test_size, recipe.device)
        record_row(model, recipe, tests, 1)  # null distributions are computed once
        pairs = [(tracked_seconds(recipe), bare_seconds(recipe)) for _ in range(TURNS)]
        ratio = min(tracked for tracked, _ in pairs) / min(bare for _, bare in pairs)
        print(f"lab, {name}: tracked / bare {ratio:.2f} (at most {MOST})")
        sharpness_row(model, tests.id, 0)
        start = process_time()
        sharpness_row(model, tests.id, 0)
        seconds, step = process_time() - start, min(bare for _, bare in pairs) / recipe.steps
        every = preset(name).sharpness_every
        share = seconds / (every * step)
        print(f"lab, {name}: sharpness {seconds:.2f} s, every {every} steps: {share:.0%} of the bare loop on top")
        if preset(name).lenses_every:
            _print_lenses(name, model, step)
    bare = bare_seconds(preset("smoke"))
    whole = smoke_seconds()
    print(f"lab, smoke: {whole:.1f} s CPU with start-up (at most {SMOKE_SECONDS:.0f}), {whole / bare:.2f} bare loops")


def _print_lenses(name: str, model: LabModel, step: float) -> None:
    """What the lenses take on one checkpoint, and on all that a preset has them look at."""
    recipe = preset(name)
    with TemporaryDirectory() as folder:
        kept = {0: save_model(model, Path(folder) / "model")}
        write_series(lens_series(kept), Path(folder) / "lenses.nc")
        start = process_time()
        tree = lens_series(kept)
        seconds, start = process_time() - start, process_time()
        write_series(tree, Path(folder) / "lenses.nc")  # once per run, whatever the number of checkpoints
        writing = process_time() - start
    count = recipe.steps // recipe.lenses_every + 1
    share = (seconds * count + writing) / (recipe.steps * step)
    text = f"lenses {seconds:.2f} s on each of {count} checkpoints and {writing:.2f} s to write"
    print(f"lab, {name}: {text}: {share:.0%} of the bare loop on top")


def smoke_seconds() -> float:
    """CPU time of the whole command, user and system."""
    with TemporaryDirectory() as folder:
        before = getrusage(RUSAGE_CHILDREN)
        command = ["-m", "headspan", "train", "copying", "--preset", "smoke", "-o", f"{folder}/run", "--json"]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        run([sys.executable, *command], check=True, capture_output=True, env={**os.environ, **threads})
        after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
