"""What following a training run costs it: the lab's default preset, affinity and spectra every 100 steps.

One loop trains in blocks of 100 steps; every second block begins with a call of a Follower. Counted are, on one thread:
the processor time of the calls over that of training; the median processor time of a followed block over that of a
block that is not, which includes what the second process takes away from caches; and the processor time of the lenses
in that second process, with and without its start.
"""

from __future__ import annotations

import warnings
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

import torch

from headspan.callbacks import Follower
from headspan.lab.recipe import preset
from headspan.lab.session import initial_progress, train_step

BLOCKS, EVERY, MOST = 12, 100, 0.02


def main() -> None:
    """Print the shares."""
    torch.set_num_threads(1)
    whole = preset("default")
    recipe = whole.with_settings(steps=BLOCKS * EVERY, cooldown=0, sharpness_every=0)
    source, progress = recipe.source(), initial_progress(recipe)
    calls, followed, bare = [], [], []
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Follower(folder, every=EVERY, config=recipe.shape.config()) as follow:
            for block in range(BLOCKS):
                start = process_time()
                if block % 2 == 0:
                    follow(progress.model, progress.step)
                    calls.append(process_time() - start)
                for _ in range(EVERY):
                    train_step(recipe, source, progress)
                (bare if block % 2 else followed).append(process_time() - start)
    looks = [done.seconds for done in follow.done]
    block, look = median(bare), median(looks)
    started = (looks[0] - look) / (block * whole.steps / EVERY)
    print(
        f"callbacks, default preset every {EVERY}: calls take {median(calls) / block:.2%} of training's processor time"
    )
    print(f"callbacks: a followed block takes {median(followed) / block - 1:+.1%} (at most {MOST:.0%})")
    print(
        f"callbacks: lenses in the second process take {look / block:.1%} of a core, its start {started:.1%} of the run"
    )


if __name__ == "__main__":
    main()
