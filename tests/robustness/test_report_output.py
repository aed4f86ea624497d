"""A report's output: never half a file, never over another one unasked, and an interrupted run is resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.errors import HeadspanError
from headspan.explorer import reports
from headspan.explorer.assembly import StackParts
from headspan.explorer.kept_results import OLDEST, KeptResults, cache_folder
from headspan.lenses.catalog import lens as lens_of
from headspan.result import Lens, Result
from headspan.storage import read_archive, write_archive
from tests.unit.test_drift import gpt2
from tests.unit.test_report import only

FEW = ("ranks", "affinity", "detect")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSPAN_CACHE", str(tmp_path / "cache"))


def _findings_alone(model: object, stacks: list[StackParts], *others: object) -> str:
    results = [part.result for one in stacks for part in one.parts if part.result is not None]
    return "<!doctype html>" + "".join(finding.statement for result in results for finding in result.findings)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Only three lenses on a page of their findings alone, and a list of those that are computed."""
    only(monkeypatch, *FEW)
    monkeypatch.setattr(reports, "document", _findings_alone)
    names: list[str] = []
    original = reports.run

    def noted(lens: Lens, *given: Any, **options: Any) -> Result:
        names.append(lens.name)
        return original(lens, *given, **options)

    monkeypatch.setattr(reports, "run", noted)
    return names


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["report", "demo", *arguments])


def test_an_existing_report_is_refused_without_force(tmp_path: Path, computed: list[str]) -> None:
    path = tmp_path / "r.html"
    path.write_text("mine")
    refused = run("-o", str(path))
    assert isinstance(refused.exception, HeadspanError)
    assert "exists already; overwrite it with --force" in str(refused.exception)
    assert path.read_text() == "mine"
    assert computed == []
    assert run("-o", str(path), "--force").exit_code == 0
    assert path.read_text().startswith("<!doctype html>")


def test_a_disk_that_is_full_leaves_the_old_report_and_nothing_else(
    tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out" / "r.html"
    path.parent.mkdir()
    path.write_text("old")
    original = Path.write_text

    def full(target: Path, text: str, **options: Any) -> int:
        with target.open("w") as handle:
            handle.write(text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    failed = run("-o", str(path), "--force")
    monkeypatch.setattr(Path, "write_text", original)
    assert "No space left on device" in str(failed.exception)
    assert path.read_text() == "old"
    assert [each.name for each in path.parent.iterdir()] == ["r.html"]
    # What had been computed is not lost either.
    computed.clear()
    assert run("-o", str(path), "--force").exit_code == 0
    assert computed == []


def test_a_place_that_refuses_files_is_told_in_one_line(computed: list[str]) -> None:
    refused = run("-o", "/proc/self/r.html")
    assert "cannot write '/proc/self/r.html'" in str(refused.exception)
    assert "\n" not in str(refused.exception)


def test_an_interrupted_run_is_resumed_where_it_stopped(
    tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "r.html", tmp_path / "whole.html"
    assert run("-o", str(whole)).exit_code == 0
    computed.clear()
    noted = reports.run

    def interrupted(lens: Lens, *given: Any, **options: Any) -> Result:
        if lens.name == "detect":
            raise KeyboardInterrupt
        return noted(lens, *given, **options)

    monkeypatch.setattr(reports, "run", interrupted)
    assert run("-o", str(path)).exit_code != 0
    assert computed == ["ranks", "affinity"]
    assert not path.exists()
    monkeypatch.setattr(reports, "run", noted)
    assert run("-o", str(path)).exit_code == 0
    assert computed == ["ranks", "affinity", "detect"]
    assert path.read_text() == whole.read_text()
    assert list((cache_folder() / "interrupted").iterdir()) == []


def test_fresh_ignores_what_was_kept(tmp_path: Path, computed: list[str]) -> None:
    heads = headspan.open("demo").heads()
    KeptResults.of(heads).result(lens_of("ranks"), lambda: headspan.ranks(heads))
    assert run("-o", str(tmp_path / "r.html"), "--fresh").exit_code == 0
    assert "ranks" in computed


def test_kept_results_are_for_the_same_weights_and_fold_alone(tmp_path: Path) -> None:
    heads = headspan.open("demo").heads()
    folders = {KeptResults.of(each, tmp_path).folder for each in (heads, heads.refolded("layernorm"), gpt2())}
    assert len(folders) == 3
    assert KeptResults.of(headspan.open("demo").heads(), tmp_path).folder in folders


def test_what_cannot_be_read_or_kept_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = headspan.ranks(gpt2())
    ranks, kept = result.lens, KeptResults(tmp_path / "kept")
    kept.result(ranks, lambda: result)
    (kept.folder / "ranks.npz").write_bytes(b"PK half a file")
    assert kept.read(ranks) is None
    xr.testing.assert_identical(kept.result(ranks, lambda: result).data, result.data)
    (tmp_path / "file").write_text("")
    blocked = KeptResults(tmp_path / "file" / "kept")
    xr.testing.assert_identical(blocked.result(ranks, lambda: result).data, result.data)


def test_what_an_interrupted_run_left_is_removed_after_a_week(tmp_path: Path) -> None:
    old, young = tmp_path / "interrupted" / "old", tmp_path / "interrupted" / "young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - OLDEST - 60,) * 2)
    KeptResults.of(gpt2(), tmp_path)
    assert (old.exists(), young.exists()) == (False, True)


def test_every_kind_of_result_comes_back_as_it_was(tmp_path: Path) -> None:
    dataset = xr.Dataset(
        {"x": (("a", "b"), [[1.0, float("nan")]]), "flag": ("a", [True]), "word": ("b", ["é", "</script>"])},
        coords={"b": [3, 5], "text": ("b", xr.DataArray(["p", "q"]).astype(object).values)},
        attrs={"lens": "ranks", "n": 3, "share": 0.5, "list": [1, 2]},
    )
    for nodes in ({"": dataset}, {"": xr.Dataset(attrs={"k": 1}), "one/two": dataset}):
        write_archive(tmp_path / "x.npz", nodes, attrs={"k": 1})
        found, header = read_archive(tmp_path / "x.npz")
        assert list(found) == list(nodes)
        assert header["attrs"] == {"k": 1}
        for name, node in nodes.items():
            xr.testing.assert_identical(found[name], node)


@pytest.mark.parametrize("name", FEW)
def test_a_kept_result_is_the_result(name: str, tmp_path: Path) -> None:
    result = lens_of(name).function("demo")
    kept = KeptResults(tmp_path / "kept")
    kept.result(result.lens, lambda: result)
    again = kept.read(result.lens)
    assert again is not None
    assert again.attrs == result.attrs
    xr.testing.assert_equal(again.data, result.data)
    assert [finding.statement for finding in again.findings] == [finding.statement for finding in result.findings]
    assert again.table().equals(result.table())


@pytest.mark.slow
def test_an_interrupt_of_the_process_leaves_nothing_half_done(tmp_path: Path) -> None:
    path = tmp_path / "out" / "r.html"
    path.parent.mkdir()
    line = [sys.executable, "-m", "headspan", "report", "demo", "-o", str(path)]
    # A shell's background jobs ignore interrupts, and their children inherit that.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env={**os.environ}, preexec_fn=heeding)
    assert process.stderr is not None
    for text in process.stderr:
        if "Positions" in text:
            process.send_signal(signal.SIGINT)
            break
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert list(path.parent.iterdir()) == []
    (kept,) = (cache_folder() / "interrupted").iterdir()
    assert {"ranks.npz", "affinity.npz", "similarity.npz"} <= {each.name for each in kept.iterdir()}
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0, done.stderr
    assert [each.name for each in path.parent.iterdir()] == ["r.html"]
    assert not kept.exists()


def test_the_command_checks_the_place_before_it_opens_the_model(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["report", "no/such/model", "-o", str(tmp_path / "none" / "r.html")])
    assert "there is no folder" in str(refused.exception)
