"""Work that is killed (kill -9) at random moments and begun again: nothing is lost, and the results are equal.

A moment is a place in the row of files that the program opens, renames, links and removes in its folder. The first run
counts them; later ones kill themselves at one drawn at random, whatever the load of the machine. Here a sweep is one
process; `test_sweep_killed` kills workers, clients and schedulers of their own.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import headspan
from headspan.lab.run_folder import open_model
from headspan.sweeps import open_store
from tests.robustness.hub_server import HubServer
from tests.robustness.local_hub import hub_environment
from tests.robustness.sweep_models import part_bytes, write_series

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("HEADSPAN_KILLS", "5"))
SETTINGS = ["steps=40", "cooldown=0", "track_every=4", "sharpness_every=0", "save_every=20", "d_model=16"]
TRAINING = ["train", "copying", "--preset", "smoke", "--no-lenses"]
TRAINING += [part for setting in SETTINGS for part in ("--set", setting)]
WATCHING = """
import atexit, os, signal, sys
place, limit = sys.argv[1], int(sys.argv[2])
seen = 0
WATCHED = ("open", "os.rename", "os.remove", "os.link", "os.mkdir")
def watch(event, arguments):
    global seen
    if event in WATCHED and any(place in str(each) for each in arguments[:2]):
        seen += 1
        if seen == limit:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
atexit.register(lambda: print("moments", seen, file=sys.stderr))
sys.argv = ["headspan", *sys.argv[3:]]
"""
COMMAND = "from headspan.cli.main import main; main()"
SWEEP = """
from headspan.sweeps import sweep
from tests.robustness.sweep_models import client_in_this_process
with client_in_this_process() as client:
    sweep(*sys.argv[1:3], lenses="ranks", client=client, progress=False)
"""


def run(
    place: Path, limit: int, arguments: list[str], env: dict[str, str], program: str
) -> subprocess.CompletedProcess[str]:
    """The program, which kills itself at the moment `limit` of its work in `place`; never, if that is 0."""
    return subprocess.run(
        [sys.executable, "-c", WATCHING + program, str(place), str(limit), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**env, "OMP_NUM_THREADS": "1"},
    )


def kill_and_finish(
    place: Path,
    whole: list[str],
    resumed: list[str],
    env: dict[str, str],
    other: dict[str, str] | None = None,
    program: str = COMMAND,
) -> None:
    """Finish `whole`, then kill `resumed` at random moments and finish it; a kill that never comes proves nothing."""
    first = run(place, 0, whole, other or env, program)
    assert first.returncode == 0, first.stderr
    moments, draw, killed = int(first.stderr.split()[-1]), random.Random(0), 0
    assert moments > 0
    for _ in range(KILLS):
        done = run(place, draw.randint(1, moments), resumed, env, program)
        assert done.returncode in (0, -9), done.stderr
        killed += done.returncode == -9
    assert killed > 0
    last = run(place, 0, resumed, env, program)
    assert last.returncode == 0, last.stderr
    assert "Traceback" not in last.stderr


def test_a_training_that_is_killed_again_and_again_gives_the_same_model(tmp_path: Path) -> None:
    whole, killed = ([*TRAINING, "-o", str(tmp_path / name)] for name in ("whole", "killed"))
    kill_and_finish(tmp_path, whole, killed, dict(os.environ))
    one, other = (open_model(tmp_path / name / "model").state_dict() for name in ("whole", "killed"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_netcdf_file_is_whole_or_absent(tmp_path: Path) -> None:
    whole, killed = (["ranks", "demo", "--force", "-o", str(tmp_path / f"{name}.nc")] for name in ("whole", "killed"))
    kill_and_finish(tmp_path, whole, killed, dict(os.environ))
    one, other = (headspan.load(tmp_path / f"{name}.nc") for name in ("whole", "killed"))
    assert one.data.identical(other.data)


def test_a_report_that_is_killed_is_written_by_the_next_run(tmp_path: Path) -> None:
    env = {**os.environ, "HEADSPAN_CACHE": str(tmp_path / "cache")}
    whole, killed = (["report", "synthetic:tiny", "--force", "-o", str(tmp_path / f"{n}.html")] for n in "ab")
    kill_and_finish(tmp_path, whole, killed, env)
    one, other = ((tmp_path / f"{name}.html").read_bytes() for name in "ab")
    assert one == other


def test_a_download_that_is_killed_is_resumed(folder: Path, hub: HubServer, tmp_path: Path) -> None:
    homes = tmp_path / "homes"
    whole, killed = (["ranks", "org/tiny", "--force", "-o", str(tmp_path / f"{name}.nc")] for name in ("a", "b"))
    environments = [hub_environment(hub, homes / name) for name in ("killed", "whole")]
    kill_and_finish(homes, whole, killed, *environments)
    one, other = (headspan.load(tmp_path / f"{name}.nc") for name in ("a", "b"))
    assert one.data.identical(other.data)


def test_a_sweep_that_is_killed_again_and_again_gives_the_same_parts(tmp_path: Path) -> None:
    series = str(write_series(tmp_path / "series", range(4)))
    whole, killed = ([series, str(tmp_path / "stores" / name)] for name in ("whole", "killed"))
    (tmp_path / "stores").mkdir()
    kill_and_finish(tmp_path / "stores", whole, killed, dict(os.environ), program=SWEEP)
    one, other = (tmp_path / "stores" / name for name in ("whole", "killed"))
    assert len(part_bytes(one)) == 4
    assert part_bytes(one) == part_bytes(other)
    assert open_store(one)["series/ranks"].identical(open_store(other)["series/ranks"])
