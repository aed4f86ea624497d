"""Work that is killed at random moments (kill -9) and begun again: nothing is lost, nothing is left, results are equal.

Sweeps are killed in `test_sweep_killed`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import headspan
from headspan.lab.run_folder import open_model
from tests.robustness.hub_server import HubServer
from tests.robustness.local_hub import hub_environment

pytestmark = pytest.mark.slow
KILLS = 20
SETTINGS = [
    "steps=60",
    "cooldown=0",
    "track_every=2",
    "sharpness_every=0",
    "save_every=20",
    "d_model=16",
    "test_size=8",
]
TRAINING = ["train", "copying", "--preset", "smoke", "--no-lenses"]
TRAINING += [part for setting in SETTINGS for part in ("--set", setting)]
WRITING = """
import sys
from pathlib import Path
import headspan
result = headspan.ranks("demo")
print("begun", flush=True)
while True:
    result.save(Path(sys.argv[1]))
"""


def started(*arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**(env or os.environ), "OMP_NUM_THREADS": "1"},
    )


def killed(process: subprocess.Popen[str], after: float) -> bool:
    """Whether the process was still at work when it was killed, `after` seconds from now."""
    try:
        process.communicate(timeout=after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True
    return False


def finished(*arguments: str, env: dict[str, str] | None = None) -> None:
    process = started("-m", "headspan", *arguments, env=env)
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors


def kill_at_random_moments(arguments: list[str], whole: float, env: dict[str, str] | None = None) -> int:
    """How many of `KILLS` attempts were killed at work; the first that comes to its end ends them."""
    draw, count = random.Random(0), 0
    for _ in range(KILLS):
        if not killed(started("-m", "headspan", *arguments, env=env), draw.uniform(0.3, 1.0) * whole):
            break
        count += 1
    return count


def test_a_training_that_is_killed_again_and_again_gives_the_same_model(tmp_path: Path) -> None:
    begun = time.monotonic()
    finished(*TRAINING, "-o", str(tmp_path / "whole"))
    arguments = [*TRAINING, "-o", str(tmp_path / "killed")]
    assert kill_at_random_moments(arguments, time.monotonic() - begun) > 0
    finished(*arguments)
    one, other = (open_model(tmp_path / name / "model").state_dict() for name in ("whole", "killed"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_netcdf_file_is_whole_at_every_moment(tmp_path: Path) -> None:
    path, draw = tmp_path / "ranks.nc", random.Random(1)
    expected = headspan.ranks("demo").data
    for _ in range(KILLS):
        process = started("-c", WRITING, str(path))
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(draw.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if path.exists():
            assert headspan.load(path).data.identical(expected)
    assert path.exists()


def test_a_report_that_is_killed_is_written_by_the_next_run(tmp_path: Path) -> None:
    env = {**os.environ, "HEADSPAN_CACHE": str(tmp_path / "cache")}
    arguments = ["report", "synthetic:tiny", "--force", "-o"]
    begun = time.monotonic()
    finished(*arguments, str(tmp_path / "whole.html"), env=env)
    whole = time.monotonic() - begun
    path = tmp_path / "killed.html"
    assert kill_at_random_moments([*arguments, str(path)], whole, env) > 0
    finished(*arguments, str(path), env=env)
    sizes = [file.stat().st_size for file in (path, tmp_path / "whole.html")]
    assert abs(sizes[0] - sizes[1]) < 0.01 * sizes[1]


def test_a_download_that_is_killed_is_resumed(folder: Path, hub: HubServer, tmp_path: Path) -> None:
    env = hub_environment(hub, tmp_path / "home")
    arguments = ["ranks", "org/tiny", "--force", "-o"]
    begun = time.monotonic()
    finished(*arguments, str(tmp_path / "whole.nc"), env=hub_environment(hub, tmp_path / "other"))
    assert kill_at_random_moments([*arguments, str(tmp_path / "a.nc")], time.monotonic() - begun, env) > 0
    finished(*arguments, str(tmp_path / "a.nc"), env=env)
    one, other = (headspan.load(tmp_path / name) for name in ("a.nc", "whole.nc"))
    assert one.data.identical(other.data)
