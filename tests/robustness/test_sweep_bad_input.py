"""What cannot be swept is refused in one line, before anything is computed, and nothing is left behind or changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headspan.errors import ArgumentError, HeadspanError, ShapeError, StoreError
from headspan.sweeps import cluster, open_store, sweep
from headspan.sweeps.cluster import connect
from tests.robustness.sweep_models import client_in_this_process, part_bytes, write_checkpoint, write_series


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with client_in_this_process() as client:
        yield client


def test_an_unknown_lens_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"there is no lens 'afinity'; lenses are ranks, .*drift"):
        sweep("demo", tmp_path / "store", lenses="ranks,afinity")
    with pytest.raises(ArgumentError, match=r"lenses=\[\] names none; lenses are ranks, "):
        sweep("demo", tmp_path / "store", lenses=[])
    assert not (tmp_path / "store").exists()


def test_a_lens_that_needs_more_than_a_model_cannot_be_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ranks(model: Any, head: str) -> None:
        pytest.fail("nothing may be computed")

    monkeypatch.setattr("headspan.lenses.ranks.ranks", ranks)
    with pytest.raises(ArgumentError, match=r"lenses='ranks': ranks needs head, so it cannot be swept"):
        sweep("demo", tmp_path / "store", lenses="ranks")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", "just a sentence"])
def test_an_empty_list_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text(content)
    with pytest.raises(HeadspanError, match=r"'list.yaml' names no checkpoint"):
        sweep(tmp_path / "list.yaml", tmp_path / "store")
    with pytest.raises(ArgumentError, match=r"there is nothing to sweep over"):
        sweep([], tmp_path / "store")
    with pytest.raises(ArgumentError, match=r"there is nothing to sweep over"):
        sweep("org/name@{ , }", tmp_path / "store")


def test_a_list_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("a: [b")
    with pytest.raises(HeadspanError, match=r"is not valid YAML"):
        sweep(tmp_path / "list.yaml", tmp_path / "store")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(HeadspanError, match=r"there is no checkpoint in the folder .* named by step, such as step-100"):
        sweep(tmp_path / "empty", tmp_path / "store")


def test_checkpoints_of_different_shapes_are_refused(client: Any, tmp_path: Path) -> None:
    series = write_series(tmp_path / "run", (0, 1))
    write_checkpoint(series / "step-2", seed=2, width=32)
    with pytest.raises(ShapeError, match=r"'run' differ in shape: d_model is 16 at step 0 and 32 at step 2"):
        sweep(series, tmp_path / "store", client=client)
    assert not part_bytes(tmp_path / "store")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "tcp://127.0.0.1", "nonsense"])
def test_an_unreachable_scheduler_is_one_line(address: str) -> None:
    with (
        pytest.raises(HeadspanError, match=rf"no Dask scheduler answered at '{address}' within 0.5 s"),
        connect(address, patience=0.5),
    ):
        pass


def test_workers_and_scheduler_exclude_each_other() -> None:
    with pytest.raises(ArgumentError, match=r"--scheduler and --workers exclude each other"), connect("a", 2):
        pass
    with pytest.raises(ArgumentError, match=r"at least 1 worker, not 0"), connect(workers=0):
        pass


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_time_limit_that_leaves_no_time_is_refused(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"time_limit = .* leaves no time; give seconds above 0"):
        sweep("demo", tmp_path / "store", time_limit=seconds)
    assert not (tmp_path / "store").exists()


def test_a_store_that_is_a_file_or_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match=r"is a file; -o names a folder"):
        sweep("demo", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    with pytest.raises(StoreError, match=r"is not empty and holds no sweep"):
        sweep("demo", tmp_path / "folder")
    with pytest.raises(StoreError, match=r"cannot make the folder '.*file/store/parts': Not a directory"):
        sweep("demo", tmp_path / "file" / "store")


def test_a_damaged_manifest_is_refused_and_says_where_results_are(client: Any, tmp_path: Path) -> None:
    series, store = write_series(tmp_path / "run", (0,)), tmp_path / "store"
    sweep(series, store, lenses="ranks", client=client)
    (store / "manifest.json").write_text('{"schema": ')
    with pytest.raises(StoreError, match=r"manifest.json' cannot be read .*finished results are whole in '.*parts'"):
        open_store(store)


def test_another_fold_state_needs_another_store(client: Any, tmp_path: Path) -> None:
    series, store = write_series(tmp_path / "run", (0,)), tmp_path / "store"
    sweep(series, store, lenses="ranks", client=client)
    with pytest.raises(StoreError, match=r"holds results with fold none, now fold layernorm; choose another"):
        sweep(series, store, lenses="ranks", fold="layernorm", client=client)


def test_a_store_that_is_not_there_or_empty_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no sweep in '.*'; make one with: headspan sweep SPEC -o"):
        open_store(tmp_path / "none")


def test_without_the_extra_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(
        HeadspanError, match=r"a sweep needs dask and distributed and zarr: pip install 'headspan\[sweep\]'"
    ):
        sweep("demo", tmp_path / "store")
    with pytest.raises(HeadspanError, match=r"a sweep needs zarr: pip install 'headspan\[sweep\]'"):
        open_store(tmp_path / "store")
