"""Five hundred checkpoints on two workers: memory stays flat and no file stays open."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from headspan.sweeps import sweep
from headspan.sweeps.cluster import connect
from tests.robustness.sweep_models import write_series

CHECKPOINTS, WARM = 500, 100
MOST_GROWTH = 20e6
"""Bytes that a worker may grow by over the whole sweep once it is warm; its resident set is about 400 MB."""


class Watch:
    """Resident memory and open files of every worker, noted whenever a task ends."""

    def __init__(self, client: Any) -> None:
        self.workers = [psutil.Process(pid) for pid in client.run(_own_pid).values()]
        self.rows: list[list[tuple[int, int]]] = []

    def __call__(self, line: str) -> None:
        if line.startswith("tasks"):
            self.rows.append([(worker.memory_info().rss, worker.num_fds()) for worker in self.workers])


def _own_pid() -> int:
    import os

    return os.getpid()


@pytest.mark.slow
def test_five_hundred_checkpoints_leave_memory_and_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = write_series(tmp_path / "run", range(CHECKPOINTS))
    monkeypatch.setattr("headspan.sweeps.progress.LINES", CHECKPOINTS)
    with connect(workers=2) as client:
        watch = Watch(client)
        summary = sweep(series, tmp_path / "store", lenses="affinity", client=client, say=watch)
    assert (summary.done, list(summary.failures)) == (CHECKPOINTS, [])
    rows = np.array(watch.rows, dtype=float)  # [task, worker, (bytes, files)]
    assert rows.shape == (CHECKPOINTS, 2, 2)
    tasks = np.arange(WARM, CHECKPOINTS)
    for worker in range(2):
        memory, files = rows[WARM:, worker, 0], rows[WARM:, worker, 1]
        slope = np.polyfit(tasks, memory, 1)[0]
        sys.stderr.write(
            f"worker {worker}: {memory.mean() / 1e6:.0f} MB, {slope * CHECKPOINTS / 1e6:+.2f} MB over {CHECKPOINTS} "
            f"tasks; {files.min():.0f} to {files.max():.0f} open files\n"
        )
        assert slope * CHECKPOINTS < MOST_GROWTH
        assert abs(np.polyfit(tasks, files, 1)[0] * CHECKPOINTS) < 5
