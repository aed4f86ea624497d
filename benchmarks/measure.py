"""Timing and peak memory, the same way in every benchmark."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def best_seconds(action: Callable[[], object], rounds: int = 7) -> float:
    """The shortest of several runs: what the work takes when nothing else disturbs it."""
    action()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 7) -> tuple[float, float, float]:
    """Best times of both and ours / theirs, measured in turns so that a busy spell hits both alike."""
    ours_best, theirs_best = float("inf"), float("inf")
    for _ in range(rounds):
        theirs_best = min(theirs_best, best_seconds(theirs, 1))
        ours_best = min(ours_best, best_seconds(ours, 1))
    return ours_best, theirs_best, ours_best / theirs_best


def process_cost(program: str, rounds: int = 5) -> tuple[float, int]:
    """Best wall time in seconds and least peak memory in bytes of `python -c program`."""
    probe = (
        "import resource, subprocess, sys, time, json\n"
        "start = time.perf_counter()\n"
        f"subprocess.run([sys.executable, '-c', {program!r}], check=True, stdout=subprocess.DEVNULL)\n"
        "took = time.perf_counter() - start\n"
        "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024\n"
        "print(json.dumps([took, peak]))"
    )
    results = [
        json.loads(subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout)
        for _ in range(rounds)
    ]
    return min(took for took, _ in results), min(int(peak) for _, peak in results)


def own_peak_bytes() -> int:
    """Peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def models_folder() -> Path:
    """Where the real models are."""
    import os

    return Path(os.environ.get("HEADSPAN_MODELS", Path(__file__).parents[2] / "shared" / "models"))
