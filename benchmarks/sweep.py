"""What a sweep adds to a lens: CPU time per task over opening a checkpoint and calling the lens; 1 against 2 workers.

The checkpoints are the embedded model with noise added. Overhead is CPU time of one process, in turns; the number of
workers is compared by wall time once workers have started, that of tasks and that of the whole sweep.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import torch
from safetensors.torch import load_file, save_file

import headspan
from headspan.demo import demo_folder
from headspan.sweeps import sweep
from headspan.sweeps.checkpoints import Settings, content_hash
from headspan.sweeps.cluster import connect
from headspan.sweeps.tasks import Task, perform

LENS_NAMES, CHECKPOINTS, ROUNDS = ("ranks", "affinity", "spectra", "positions"), 12, 5


def write_series(folder: Path) -> Path:
    """Checkpoints that differ a little."""
    tensors = load_file(demo_folder() / "model.safetensors")
    for step in range(CHECKPOINTS):
        shutil.copytree(demo_folder(), folder / f"step-{step}")
        generator = torch.Generator().manual_seed(step)
        noisy = {name: w + 1e-3 * torch.randn(w.shape, generator=generator) for name, w in tensors.items()}
        save_file(noisy, folder / f"step-{step}" / "model.safetensors")
    return folder


def overhead(series: Path, parts: Path) -> None:
    """CPU time of a task and of the bare lens, best of several rounds in turns."""
    for name in LENS_NAMES:
        (parts / name).mkdir(parents=True)
        source = str(series / "step-0")
        task = Task(name, "m", 0, ((source, content_hash(headspan.open(source).checkpoint)),), Settings())
        bare, whole = float("inf"), float("inf")
        for _ in range(ROUNDS):
            start = process_time()
            getattr(headspan, name)(source)
            bare = min(bare, process_time() - start)
            start = process_time()
            perform(task, str(parts))
            whole = min(whole, process_time() - start)
        print(
            f"sweep, {name}: task {whole:.3f} s, bare lens {bare:.3f} s CPU; {whole - bare:+.3f} s, {whole / bare:.2f}"
        )


class Phases:
    """When each phase of a sweep ended: checkpoints described, tasks done, groups written."""

    def __init__(self) -> None:
        self.ended: dict[str, float] = {}

    def __call__(self, line: str) -> None:
        self.ended[line.partition(":")[0]] = perf_counter()

    def seconds(self) -> tuple[float, float]:
        """Of tasks and of groups."""
        return self.ended["tasks"] - self.ended["checkpoints"], self.ended["groups"] - self.ended["tasks"]


def workers_compared(series: Path, folder: Path) -> None:
    """Wall time of the same sweep on one worker and on two: its tasks, which share out, and its groups, two in all."""
    lenses, tasks, whole = "affinity,spectra", {}, {}
    for workers in (1, 2):
        with connect(workers=workers) as client:
            # Each worker loads its libraries with the first tasks it gets.
            sweep(series, folder / f"warm-{workers}", lenses="affinity", client=client)
            phases, store, start = Phases(), folder / f"store-{workers}", perf_counter()
            sweep(series, store, lenses=lenses, client=client, say=phases)
            whole[workers] = perf_counter() - start
            tasks[workers], groups = phases.seconds()
            start = perf_counter()
            sweep(series, store, lenses=lenses, client=client)
            print(
                f"sweep, {workers} workers: tasks {tasks[workers]:.1f} s, groups {groups:.1f} s, whole "
                f"{whole[workers]:.1f} s; resumed {perf_counter() - start:.2f} s"
            )
    print(
        f"sweep, 1 worker / 2 workers: tasks {tasks[1] / tasks[2]:.2f}, whole {whole[1] / whole[2]:.2f} for "
        f"{CHECKPOINTS} checkpoints"
    )


def main() -> None:
    """Print the figures."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        series = write_series(Path(folder) / "run")
        overhead(series, Path(folder) / "parts")
        workers_compared(series, Path(folder))
