"""The commands `sweep` and `evolution`: what they print, their exit codes, and the view while they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headspan.cli.main import app
from headspan.progress import duration
from headspan.sweeps import session
from headspan.sweeps.progress import View, progress_view
from tests.robustness.sweep_models import client_in_this_process, write_series


@pytest.fixture
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def here(scheduler: str | None, workers: int | None) -> Iterator[Any]:
        with client_in_this_process() as client:
            yield client

    monkeypatch.setattr(session, "connect", here)


@pytest.mark.usefixtures("_in_this_process")
def test_failed_tasks_are_listed_and_make_exit_code_three(tmp_path: Path) -> None:
    series, store = write_series(tmp_path / "run", (0, 1, 2), seeds=(0, 1, 1)), tmp_path / "store"
    (series / "step-0" / "config.json").write_text("{")
    command = ["sweep", str(series), "-o", str(store), "--lenses", "ranks,drift"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 3, done.output
    lines = done.stdout.splitlines()
    assert lines[-1] == f"2 results computed, 0 found finished, 1 failed; kept in {store}"
    assert "run: step 2 has the same weights as step 1" in lines
    assert any(line.startswith("failed: ") and "step-0': " in line and "config.json" in line for line in lines)
    assert "checkpoints: 3 of 3 done, 1 failed, 0 s left" in done.stderr
    again = json.loads(CliRunner().invoke(app, [*command, "--json", "--quiet"]).stdout)
    assert (again["done"], again["reused"], len(again["failures"])) == (0, 2, 1)
    shown = CliRunner().invoke(app, ["evolution", str(store), "--json"])
    assert json.loads(shown.stdout)["models"]["run"]["steps"] == [1, 2]


def test_plain_lines_are_few_and_name_every_failure() -> None:
    said: list[str] = []
    view = View("tasks", 100, said.append)
    for place in range(100):
        view.ended(f"task {place}", "it broke" if place == 30 else "")
    assert len(said) == 21
    assert "tasks: task 30 failed: it broke" in said
    assert said[-1].startswith("tasks: 100 of 100 done, 1 failed")


@pytest.mark.parametrize(("seconds", "text"), [(3.2, "3 s"), (300, "5 min"), (9000, "2.5 h")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_quiet_view_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_view("tasks", 1, None, progress=False) as view:
        view.ended("x", "broken")
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_one_live_line_with_done_running_and_failed() -> None:
    program = (
        "from headspan.sweeps.progress import progress_view\n"
        "class Client:\n"
        "    def nthreads(self): return {'a': 1, 'b': 1}\n"
        "with progress_view('tasks', 3, Client(), progress=True) as view:\n"
        "    view.ended('one'); view.ended('two', 'it [broke]')\n"
    )
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    subprocess.run([sys.executable, "-c", program], env=environment, stderr=theirs, check=True, timeout=300)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "two failed: it [broke]" in shown
    assert "2/3" in shown
    assert "1 running, 1 failed" in shown
