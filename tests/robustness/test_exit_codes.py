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

from headspan.cli import main as entry
from headspan.cli.main import app, internal
from headspan.errors import ArgumentError

WRONG = {"sweep": ["~nosuchuser/x", "-o", "store"], "evolution": ["no-store"], "claims": ["--document", "none"]}
WRONG |= {"reproduce": ["nothing"], "train": ["juggling", "-o", "run"], "families": ["--nothing"]}
EXTRA = {"compare": ["./b"], "drift": ["./b"], "pair": ["L0H0", "L1H0"], "tokens": ["L0H0"], "intervene": []}


def commands() -> list[str]:
    group: Any = typer.main.get_command(app)
    return sorted(group.commands)


def run_main(arguments: list[str], patch: pytest.MonkeyPatch) -> int:
    patch.setattr(sys, "argv", ["headspan", *arguments])
    with pytest.raises(SystemExit) as end:
        entry.main()
    return int(end.value.code or 0)


@pytest.mark.parametrize("name", commands())
def test_wrong_input_is_2_for_every_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = WRONG.get(name, ["./nothing-here", *EXTRA.get(name, [])])
    wanted = "--json" in str(typer.main.get_command(app).commands[name].params)  # type: ignore[attr-defined]
    assert run_main([name, *arguments], monkeypatch) == 2
    if wanted or name not in {"report", "reproduce"}:
        capfd.readouterr()
        assert run_main([name, *arguments, "--json"], monkeypatch) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err


def test_success_is_0_and_writes_nothing_but_json(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from headspan.cli import inspect

    original = inspect._document

    def noisy(*arguments: Any) -> dict[str, Any]:
        print("a library that prints")  # noqa: T201
        os.write(1, b"compiled code that prints\n")
        return original(*arguments)

    monkeypatch.setattr(inspect, "_document", noisy)
    assert run_main(["inspect", "demo", "--json"], monkeypatch) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["family"] == "llama"
    assert "a library that prints" in err
    assert "compiled code that prints" in err


def test_a_surprise_is_one_line_with_an_id_and_70(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise KeyError("nobody\nforesaw")

    monkeypatch.setattr("headspan.result.write_result", surprise, raising=False)
    monkeypatch.setattr("headspan.storage.write_netcdf", surprise)
    arguments = ["ranks", "demo", "-o", str(tmp_path / "ranks.nc")]
    assert run_main(arguments, monkeypatch) == 70
    err = capfd.readouterr().err
    assert re.fullmatch(r"headspan: internal error in .*; please report it with the id [0-9a-f]{10}\n", err), err
    assert list(tmp_path.iterdir()) == []
    assert run_main(["--debug", *arguments], monkeypatch) == 70
    assert "Traceback" in capfd.readouterr().err


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
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
    assert run_main(["report", "synthetic:tiny", "-o", str(tmp_path / "r.html")], monkeypatch) == 3
    err = capfd.readouterr().err
    assert "headspan: affinity failed: left out to be quick" in err
    assert (tmp_path / "r.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_program_itself_keeps_to_the_codes(tmp_path: Path) -> None:
    for arguments, code in ((["inspect", "demo", "--json"], 0), (["inspect", "~nosuchuser/x"], 2), (["--nothing"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "headspan", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
