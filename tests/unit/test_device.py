"""`device=` works by construction: no lens makes a tensor where its weights are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLANTED = """
import torch
from tests.second_device import second_device
with second_device() as name:
    a = torch.ones(3, 4).to(name)
    for mistake in (
        lambda: a + torch.ones(4),
        lambda: torch.stack([a, torch.ones(3, 4)]),
        lambda: a.numpy(),
        lambda: torch.randn(3, generator=torch.Generator(), device=name),
    ):
        try:
            mistake()
        except (RuntimeError, TypeError) as problem:
            assert "device" in str(problem), problem
        else:
            raise SystemExit("a mistake was not seen")
    assert (a * torch.tensor(2.0))[torch.tensor([0])].cpu().numpy().sum() == 8
    assert torch.tensor([1.0, 2.0], device=name).tolist() == [1.0, 2.0]
"""


def outcomes(cases: str) -> dict[str, str]:
    """What failed, by case."""
    command = [sys.executable, "-m", "tests.lenses_elsewhere", cases]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_second_device_refuses_what_a_gpu_refuses() -> None:
    subprocess.run([sys.executable, "-c", PLANTED], cwd=ROOT, check=True)


def test_every_lens_gives_on_a_second_device_what_it_gives_on_the_first() -> None:
    failed = {name: problem for name, problem in outcomes("defaults").items() if problem}
    assert not failed, "\n".join(failed.values())


@pytest.mark.slow
def test_options_of_lenses_work_on_a_second_device() -> None:
    failed = {name: problem for name, problem in outcomes("options").items() if problem}
    assert not failed, "\n".join(f"{name}\n{problem}" for name, problem in failed.items())
