"""What watching costs: a tracked run against the bare loop of data, model and optimiser; and the smoke preset.

Both loops run in one process, in turns, on the same recipe; CPU time on one thread. Sharpness has its own interval and
is timed on its own.
"""

from __future__ import annotations

from time import process_time

import torch

from headspan.lab.recipe import Recipe, preset
from headspan.lab.recording import measured_row
from headspan.lab.sharpness import sharpness_row
from headspan.lab.source import Source
from headspan.lab.trainer import begun, tests_of, train, train_step

MOST, TURNS = 1.3, 3
SMOKE_SECONDS = 20.0


def bare_seconds(recipe: Recipe) -> float:
    """The loop alone."""
    source, progress = Source.of(recipe), begun(recipe)
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
        recipe = recipe.changed(steps=2 * recipe.track_every, cooldown=0, sharpness_every=0)
        source = Source.of(recipe)
        measured_row(begun(recipe).model, recipe, tests_of(recipe, source), 1)  # laws of chance are computed once
        pairs = [(tracked_seconds(recipe), bare_seconds(recipe)) for _ in range(TURNS)]
        ratio = min(tracked for tracked, _ in pairs) / min(bare for _, bare in pairs)
        print(f"lab, {name}: tracked / bare {ratio:.2f} (at most {MOST})")
        model, tests = begun(recipe).model, tests_of(recipe, source)
        sharpness_row(model, tests.id, 0)
        start = process_time()
        sharpness_row(model, tests.id, 0)
        seconds, step = process_time() - start, min(bare for _, bare in pairs) / recipe.steps
        every = preset(name).sharpness_every
        share = seconds / (every * step)
        print(f"lab, {name}: sharpness {seconds:.2f} s, every {every} steps: {share:.0%} of the bare loop on top")
    start = process_time()
    train(preset("smoke"))
    print(f"lab, smoke preset from start to end: {process_time() - start:.1f} s CPU (at most {SMOKE_SECONDS:.0f})")
