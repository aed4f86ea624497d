"""A sweep on a disk that really is full: run as a program of its own, it prints what happened as JSON.

    python -m tests.robustness.small_disk WAY SERIES FOLDER

1. The sweep runs into `FOLDER/whole`, on the ordinary disk: what is to come out, and how large it is.
2. It runs into `FOLDER/small/store`, where some results find room and the rest do not.
3. The disk grows until all results find room, but not the groups made of them.
4. The disk grows again.

The small disk is a tmpfs in a mount namespace that ends with this process, so that nothing stays mounted whatever
happens. Where the kernel does not let us mount one, it limits the size of files (RLIMIT_FSIZE): writing then fails
half-way through a file as it does on a full disk, with another number.
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

NAMESPACES = {"a tmpfs of root": ("unshare", "-m"), "a tmpfs of a user": ("unshare", "-r", "-m")}
LIMIT = "a limit on the size of files"
LENSES = "ranks,affinity"
PAGE = 4096


@cache
def ways() -> tuple[str, ...]:
    """How this machine lets us fill a disk: the first kind of tmpfs that can be mounted, and the limit, which can be."""
    with tempfile.TemporaryDirectory() as folder:
        mounting = ("mount", "-t", "tmpfs", "-o", f"size={PAGE}", "tmpfs", folder)
        for name, prefix in NAMESPACES.items():
            if not shutil.which("unshare") or not shutil.which("mount"):
                break
            if subprocess.run([*prefix, *mounting], capture_output=True, check=False, timeout=60).returncode == 0:
                return name, LIMIT
    return (LIMIT,)


def command(way: str, *arguments: str) -> list[str]:
    """The command that runs this file where it may mount a disk of its own."""
    return [*NAMESPACES.get(way, ()), sys.executable, "-m", "tests.robustness.small_disk", way, *arguments]


def allow(way: str, disk: Path, size: int) -> None:
    """Give the disk room for that many bytes, or every file on it."""
    if way == LIMIT:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return
    verb = f"remount,size={size}" if disk.is_mount() else f"size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", verb, "tmpfs", str(disk)], check=True, timeout=60)


def sizes(way: str, whole: Path) -> tuple[int, int, int]:
    """Room for some of the results, for all of them but not for the groups, and for everything."""
    parts = {
        lens: [path.stat().st_size for path in (whole / "parts" / lens).glob("*.npz")] for lens in LENSES.split(",")
    }
    if way == LIMIT:
        largest = max(path.stat().st_size for path in (whole / "results.zarr").rglob("*") if path.is_file())
        return max(parts["ranks"]), max(*parts["affinity"], largest - 1), 2**30
    # A tmpfs counts whole pages, and folders and descriptions as well.
    used = sum(-(-size // PAGE) * PAGE for found in parts.values() for size in found)
    return used // 2, used + 30 * PAGE, 2**30


def main(way: str, series: str, folder: str) -> None:
    """Run the sweep in the four states of the disk."""
    from headspan.sweep import open_store, run_sweep
    from tests.robustness.sweep_models import client_in_this_process

    disk = Path(folder) / "small"
    disk.mkdir()
    told: list[dict[str, Any]] = []
    with client_in_this_process() as client:
        run_sweep(series, Path(folder) / "whole", lenses=LENSES, client=client)
        for state, size in zip(("full", "fuller", "enough"), sizes(way, Path(folder) / "whole"), strict=True):
            allow(way, disk, size)
            summary = run_sweep(series, disk / "store", lenses=LENSES, client=client)
            seen = {lens: len(tree["step"]) for lens, tree in open_store(disk / "store")["run"].children.items()}
            told.append({**summary.as_json(), "seen": seen})
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limits[1], limits[1]))
            shutil.copytree(disk / "store", Path(folder) / state)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
