"""A clock that goes backwards changes nothing: not the order of steps, not what is resumed, not who holds the lock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headspan.sweeps import open_store, sweep
from tests.robustness.sweep_models import client_in_this_process, part_bytes, write_checkpoint, write_series


@pytest.mark.slow
def test_steps_resuming_and_lock_do_not_depend_on_the_clock(tmp_path: Path) -> None:
    series, store = write_series(tmp_path / "run", (0, 10, 100)), tmp_path / "store"
    later = write_checkpoint(tmp_path / "step-5", seed=5)
    command = [sys.executable, "-m", "tests.robustness.backward_clock", *map(str, (series, later, store))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, second, refused, third, clock = json.loads(done.stdout)
    # By the clock each result was written before the one ahead of it, the last in 1970.
    assert len(clock["seen"]) == 4
    assert (np.diff(clock["seen"]) < 0).all()
    assert clock["seen"][-1] < 2_000_000
    assert [(told["done"], told["reused"], told["failures"]) for told in (first, second, third)] == [
        (3, 0, []),
        (1, 3, []),
        (0, 4, []),
    ]
    assert f"another sweep is writing to '{store}' (process {refused['pid']} on" in refused["refusal"]
    assert list(open_store(store)["run/ranks"]["step"].values) == [0, 5, 10, 100]
    with client_in_this_process() as client:
        sweep(series, tmp_path / "undisturbed", lenses="ranks", client=client)
    assert part_bytes(store) == part_bytes(tmp_path / "undisturbed")
