"""A sweep on a disk that really is full: run as a program of its own, it prints what happened as JSON.

    python -m tests.robustness.small_disk SERIES FOLDER WAY...

1. The sweep runs into `FOLDER/whole`, on the ordinary disk: what is to come out, and how large it is.
2. It runs where some results find room and the rest do not (`full`).
3. A tmpfs grows until all results find room, but not the groups made of them (`fuller`).
4. The disk grows again (`enough`).

After each, the store is copied to `FOLDER/WAY/STATE`. The small disk is a tmpfs in a mount namespace that ends with
this process, so that nothing stays mounted whatever happens. Where the kernel does not let us mount one, there is still
its limit on the size of files (RLIMIT_FSIZE): writing then fails half-way through a file as it does on a full disk,
with another number.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

NAMESPACES = {"tmpfs": ("unshare", "-m"), "tmpfs-of-a-user": ("unshare", "-r", "-m")}
LIMIT = "limit"
LENSES = ("ranks", "affinity")
PAGE = 4096


@cache
def ways() -> tuple[str, ...]:
    """How this machine lets us fill a disk: the first kind of tmpfs that can be mounted, if any, and the limit."""
    if not shutil.which("unshare") or not shutil.which("mount"):
        return (LIMIT,)
    with tempfile.TemporaryDirectory() as folder:
        mounting = ("mount", "-t", "tmpfs", "-o", f"size={PAGE}", "tmpfs", folder)
        for name, prefix in NAMESPACES.items():
            if subprocess.run([*prefix, *mounting], capture_output=True, check=False, timeout=60).returncode == 0:
                return name, LIMIT
    return (LIMIT,)


def command(series: Path, folder: Path) -> list[str]:
    """The command that runs this file where it may mount a disk of its own."""
    program = [sys.executable, "-m", "tests.robustness.small_disk", str(series), str(folder)]
    return [*NAMESPACES.get(ways()[0], ()), *program, *ways()]


def allow(way: str, disk: Path, size: int) -> None:
    """Give the disk room for that many bytes, or every file on it."""
    if way == LIMIT:
        limit_files(size)
        return
    options = f"remount,size={size}" if disk.is_mount() else f"size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True, timeout=60)


def limit_files(size: int = resource.RLIM_INFINITY) -> None:
    """Let the kernel refuse to write beyond that many bytes of a file."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size == resource.RLIM_INFINITY else size, most))


def sizes(way: str, whole: Path) -> dict[str, int]:
    """Room for some of the results, for all of them but not for the groups, and for everything."""
    parts = {lens: [path.stat().st_size for path in (whole / "parts" / lens).glob("*.npz")] for lens in LENSES}
    if way == LIMIT:
        return {"full": max(parts["ranks"]), "enough": resource.RLIM_INFINITY}
    # A tmpfs counts whole pages, and folders and descriptions as well.
    used = sum(-(-size // PAGE) * PAGE for found in parts.values() for size in found)
    return {"full": used // 2, "fuller": used + 40 * PAGE, "enough": 2**30}


def main(series: str, folder: str, *chosen: str) -> None:
    """Run the sweep in every state of every disk."""
    from headspan.sweeps import open_store, sweep
    from tests.robustness.sweep_models import client_in_this_process

    told: dict[str, Any] = {}
    with client_in_this_process() as client:
        sweep(series, Path(folder) / "whole", lenses=LENSES, client=client)
        for way in chosen:
            disk = Path(folder) / f"small-{way}"
            disk.mkdir()
            for state, size in sizes(way, Path(folder) / "whole").items():
                allow(way, disk, size)
                summary = sweep(series, disk / "store", lenses=LENSES, client=client).to_json()
                # A task that was under way when the sweep stopped may yet find room; the worker has one thread.
                client.submit(int, pure=False).result()
                limit_files()
                seen = {lens: len(tree["step"]) for lens, tree in open_store(disk / "store")["run"].children.items()}
                told.setdefault(way, {})[state] = {**summary, "seen": seen}
                shutil.copytree(disk / "store", Path(folder) / way / state)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
