"""What following a training run costs it: the lab's default preset, affinity and spectra every 100 steps.

The same loop runs with and without a Follower, in turns, in one process. Counted is the processor time of the training
process (the lenses run in another) and the wall time that training waited for the Follower, both over the loop's own.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import torch

from headspan.callbacks import Follower
from headspan.lab.recipe import Recipe, preset
from headspan.lab.session import initial_progress, train_step

STEPS, EVERY, TURNS, MOST = 400, 100, 3, 0.02


def seconds(recipe: Recipe, folder: Path | None) -> tuple[float, float, float, float]:
    """Processor and wall time of the loop; what training waited within it; processor time of the lenses elsewhere."""
    source, progress = recipe.source(), initial_progress(recipe)
    follow = None if folder is None else Follower(folder, every=EVERY, config=recipe.shape.config())
    cpu, wall = process_time(), perf_counter()
    while progress.step < recipe.steps:
        train_step(recipe, source, progress)
        if follow is not None:
            follow(progress.model, progress.step)
    cpu, wall = process_time() - cpu, perf_counter() - wall
    if follow is None:
        return cpu, wall, 0.0, 0.0
    waited = follow.blocked
    follow.close()
    return cpu, wall, waited, sum(done.seconds for done in follow.done)


def main() -> None:
    """Print the shares."""
    torch.set_num_threads(1)
    recipe = preset("default").with_settings(steps=STEPS, cooldown=0, sharpness_every=0)
    with TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare, followed = [], []
        for turn in range(TURNS):
            bare.append(seconds(recipe, None))
            followed.append(seconds(recipe, Path(scratch) / str(turn)))
    extra = min(one[0] for one in followed) / min(one[0] for one in bare) - 1
    waited = min(one[2] / one[1] for one in followed)
    lenses = min(one[3] for one in followed) / min(one[0] for one in bare)
    print(f"callbacks, default preset every {EVERY}: training's own processor time +{extra:.1%} (at most {MOST:.0%})")
    print(f"callbacks: training waited {waited:.1%} of its time; lenses in the second process took {lenses:.1%} of it")


if __name__ == "__main__":
    main()
