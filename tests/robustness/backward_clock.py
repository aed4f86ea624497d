"""A sweep during which the clock goes backwards: run as a program of its own, it prints what happened as JSON.

    python -m tests.robustness.backward_clock SERIES LATER STORE

The clock is turned before anything that may ask it is loaded, Dask included. It goes back whenever a result is written,
by seconds: Dask times its messages by the clock, and one that is due at that moment waits for as long as it went back.
Then, between two clusters, everything is dated in the future, a lock left by a dead process too, and from 1970 the
sweep goes on, with a step that was added in between (`LATER`, put into the series).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SECONDS, FUTURE, LONG_AGO = 2.0, 4_100_000_000, 1_000_000
asked_of_the_kernel = time.time
shift = 0.0


def turned() -> float:
    return asked_of_the_kernel() + shift


def turn(by: float) -> None:
    """Turn the clock."""
    global shift
    shift += by


def sweeps(series: Path, later: Path, store: Path) -> list[dict[str, Any]]:
    """Sweep while the clock goes back, and again in 1970 over files of the year 2099."""
    import numpy as np

    from headspan.errors import StoreError
    from headspan.sweeps import sweep
    from headspan.sweeps.store import Store
    from tests.robustness.sweep_models import client_in_this_process

    saving, seen = np.savez, []

    def save_and_turn(file: Any, **arrays: Any) -> None:
        saving(file, **arrays)
        seen.append(time.time())
        turn(-SECONDS)

    np.savez = save_and_turn
    with client_in_this_process() as client:
        told = [sweep(series, store, lenses="ranks", client=client).to_json()]
    later.rename(series / later.name)
    (store / "lock").write_text(json.dumps({"pid": 1, "host": "gone"}))
    for path in [*store.rglob("*"), *series.rglob("*")]:
        os.utime(path, (FUTURE, FUTURE))
    turn(LONG_AGO - time.time())
    with client_in_this_process() as client:
        told.append(sweep(series, store, lenses="ranks", client=client).to_json())
        with Store(store).lock():
            os.utime(store / "lock", (0, 0))
            try:
                sweep(series, store, lenses="ranks", client=client)
            except StoreError as refusal:
                told.append({"refusal": str(refusal), "pid": os.getpid()})
        told.append(sweep(series, store, lenses="ranks", client=client).to_json())
    told.append({"seen": seen})
    return told


if __name__ == "__main__":
    time.time, time.time_ns = turned, lambda: int(turned() * 1e9)
    json.dump(sweeps(*map(Path, sys.argv[1:])), sys.stdout)
