"""Exit codes of every command, nothing but JSON on standard output with --json, and one line for surprises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from headspan.cli.main import app, internal
from headspan.errors import ArgumentError
from tests.conftest import Program

WRONG = {"sweep": ["~nosuchuser/x", "-o", "store"], "evolution": ["no-store"], "claims": ["--document", "none"]}
WRONG |= {"reproduce": ["nothing"], "train": ["juggling", "-o", "run"], "families": ["--nothing"]}
EXTRA = {"compare": ["./b"], "drift": ["./b"], "pair": ["L0H0", "L1H0"], "tokens": ["L0H0"], "intervene": []}


def commands() -> list[str]:
    group: Any = typer.main.get_command(app)
    return sorted(group.commands)


@pytest.mark.parametrize("name", commands())
def test_wrong_input_is_2_for_every_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = WRONG.get(name, ["./nothing-here", *EXTRA.get(name, [])])
    wanted = "--json" in str(typer.main.get_command(app).commands[name].params)  # type: ignore[attr-defined]
    assert program(name, *arguments).returncode == 2
    if wanted or name not in {"report", "reproduce"}:
        done = program(name, *arguments, "--json")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr


def test_success_is_0_and_writes_nothing_but_json(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    from headspan.cli import inspect

    original = inspect._document

    def noisy(*arguments: Any) -> dict[str, Any]:
        print("a library that prints")  # noqa: T201
        os.write(1, b"compiled code that prints\n")
        return original(*arguments)

    monkeypatch.setattr(inspect, "_document", noisy)
    done = program("inspect", "demo", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["family"] == "llama"
    assert "a library that prints" in done.stderr
    assert "compiled code that prints" in done.stderr


def test_a_surprise_is_one_line_with_an_id_and_70(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise KeyError("nobody\nforesaw")

    monkeypatch.setattr("headspan.result.write_result", surprise, raising=False)
    monkeypatch.setattr("headspan.storage.write_netcdf", surprise)
    arguments = ["ranks", "demo", "-o", str(tmp_path / "ranks.nc")]
    done = program(*arguments)
    assert done.returncode == 70
    assert re.fullmatch(r"headspan: internal error in .*; please report it with the id [0-9a-f]{10}\n", done.stderr)
    assert list(tmp_path.iterdir()) == []
    done = program("--debug", *arguments)
    assert done.returncode == 70
    assert "Traceback" in done.stderr


def test_the_id_of_a_surprise_is_that_of_the_mistake() -> None:
    def raised(kind: type[Exception], text: str) -> BaseException:
        try:
            raise kind(text)
        except Exception as problem:  # noqa: BLE001
            return problem

    one, same, other = (internal(raised(*each)) for each in ((KeyError, "a"), (KeyError, "b"), (TypeError, "a")))
    assert one[-10:] == same[-10:] != other[-10:]
    assert "not enough memory" in internal(MemoryError())


@pytest.mark.filterwarnings("ignore")
def test_a_report_with_a_failed_chapter_is_3_and_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    from headspan.explorer import reports

    original = reports.run

    def failing(lens: Any, *rest: Any, **more: Any) -> Any:
        if lens.name == "ranks":
            raise ZeroDivisionError("by chance")
        if lens.name not in {"spectra"}:
            raise ArgumentError("left out to be quick") if lens.name == "affinity" else reports.NotRun("too slow here")
        return original(lens, *rest, **more)

    monkeypatch.setenv("HEADSPAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(reports, "run", failing)
    done = program("report", "synthetic:tiny", "-o", str(tmp_path / "r.html"))
    assert done.returncode == 3
    assert "headspan: affinity failed: left out to be quick" in done.stderr
    assert (tmp_path / "r.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_program_itself_keeps_to_the_codes(tmp_path: Path) -> None:
    for arguments, code in ((["inspect", "demo", "--json"], 0), (["inspect", "~nosuchuser/x"], 2), (["--nothing"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "headspan", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
