"""Lenses on a 7B shape through the command line: peak memory of the process and its processor time.

    python -m benchmarks.lens_memory                            vocabulary, wiring, channels on two layers each
    python -m benchmarks.lens_memory wiring mistral-7b          one lens, whole
    python -m benchmarks.lens_memory channels "mistral-7b?layers=8" --pairings OK

The process is `headspan LENS synthetic:SHAPE --memory 4GB` on one thread; what follows the shape are further options of
that command. Peak is the largest resident memory, processor time is user and system with making the weights; both are
the system's own count of the process after it ended. Target: at most 4 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

LENSES, SLICE, BUDGET = ("vocabulary", "wiring", "channels"), "mistral-7b?layers=2", "4GB"


def main(arguments: Sequence[str] = ()) -> None:
    """Every lens on a slice, or the one that is named."""
    if not arguments:
        for lens in LENSES:
            print_cost(lens, SLICE, ())
    elif len(arguments) == 1 or arguments[0] not in LENSES:
        sys.exit(f"write a lens ({', '.join(LENSES)}) and a shape, such as wiring mistral-7b")
    else:
        print_cost(arguments[0], arguments[1], arguments[2:])


def print_cost(lens: str, shape: str, options: Sequence[str]) -> None:
    """Run a lens in a process of its own, and print what the process took."""
    command = [sys.executable, "-m", "headspan", lens, f"synthetic:{shape}", "--memory", BUDGET, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    told = " ".join((lens, shape, *options))
    print(
        f"{told}: peak {peak / 1e9:.2f} GB (target 4), {used.ru_utime + used.ru_stime:.0f} s of processor time",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
