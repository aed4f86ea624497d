"""The command line on models of the Hub, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.robustness.hub_server import COMMIT, HubServer
from tests.robustness.local_hub import hub_environment


def test_the_command_line_reads_from_the_hub(folder: Path, hub: HubServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headspan", "inspect", f"org/tiny@{COMMIT}"]
    done = subprocess.run(
        command, env=hub_environment(hub, tmp_path / "home"), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Size on the Hub" in done.stdout
    missing = [sys.executable, "-m", "headspan", "inspect", "org/none"]
    done = subprocess.run(
        missing, env=hub_environment(hub, tmp_path / "home"), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"headspan: there is no file or folder 'org/none' here, and .+\n", done.stderr)


def test_inspecting_a_model_on_the_hub_does_not_load_torch(folder: Path, hub: HubServer, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from headspan.cli.main import app\n"
        "app(['inspect', sys.argv[1]], standalone_mode=False)\n"
        "print([name for name in ('torch', 'numpy', 'safetensors', 'huggingface_hub') if name in sys.modules])"
    )
    for model, loaded in (("org/tiny", "['huggingface_hub']"), ("demo", "[]")):
        done = subprocess.run(
            [sys.executable, "-c", program, model],
            env=hub_environment(hub, tmp_path / "home"),
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert done.stdout.splitlines()[-1] == loaded


@pytest.mark.parametrize("piped", [False, True], ids=["terminal", "pipe"])
def test_a_bar_is_drawn_on_a_terminal_only(piped: bool, folder: Path, hub: HubServer, tmp_path: Path) -> None:
    program = "import headspan; assert headspan.open('org/tiny').heads().W_E.shape == (6000, 192)"
    ours, theirs = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**hub_environment(hub, tmp_path / "home"), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE if piped else theirs,
        stderr=theirs,
        check=True,
        timeout=300,
    )
    os.write(theirs, b"end")
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    assert not done.stdout
    assert ("org/tiny: model.safetensors" in shown) is not piped
    assert (shown == "end") is piped
