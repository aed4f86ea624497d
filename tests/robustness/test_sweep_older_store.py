"""A store of another version: an older one is gone on with, a newer one refused; neither loses anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from headspan.errors import HeadspanError, StoreError
from headspan.sweeps import open_store, sweep
from tests.robustness.sweep_models import client_in_this_process, part_bytes, write_checkpoint, write_series

STEPS = (0, 10, 100)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with client_in_this_process() as client:
        yield client


@pytest.fixture
def series(tmp_path: Path) -> Path:
    return write_series(tmp_path / "run", STEPS)


@pytest.fixture
def store(series: Path, client: Any, tmp_path: Path) -> Path:
    sweep(series, tmp_path / "store", lenses="ranks", client=client)
    return tmp_path / "store"


def write_older(store: Path, number: int = 0, **changes: Any) -> None:
    """Turn a store into one of format 0, whose manifest names sources alone; or into what `changes` say."""
    place = store / "manifest.json"
    record = json.loads(place.read_text())
    kept = {"schema": f"headspan.sweep/{number}", "headspan_version": "0.0.9", "series": record["series"], **changes}
    place.write_text(json.dumps(kept))


def files(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_an_older_store_is_read_and_reading_changes_nothing(store: Path) -> None:
    expected = open_store(store).load()
    write_older(store)
    before = files(store)
    xr.testing.assert_identical(open_store(store).load(), expected)
    assert files(store) == before


def test_a_sweep_goes_on_in_an_older_store_and_keeps_all_that_was_there(store: Path, series: Path, client: Any) -> None:
    write_older(store)
    older, parts = (store / "manifest.json").read_text(), part_bytes(store)
    write_checkpoint(series / "step-200", seed=200)
    summary = sweep(series, store, lenses="ranks", client=client)
    assert (summary.done, summary.reused, list(summary.failures)) == (1, 3, [])
    assert parts.items() <= part_bytes(store).items()
    assert json.loads((store / "manifest.format-0.json").read_text()) == json.loads(older)
    assert json.loads((store / "manifest.json").read_text())["schema"] == "headspan.sweep/2"
    assert list(open_store(store)["run/ranks"]["step"].values) == [0, 10, 100, 200]


def turn_into_format_1(store: Path) -> None:
    """As the version before left it: results under other names, in parts and groups of their own format."""
    write_older(store, 1, settings={"fold": "none", "stack": None}, lenses=["ranks"], failures=[])
    for place, part in enumerate(sorted((store / "parts" / "ranks").glob("*.npz"))):
        part.rename(part.with_name(f"{place:040x}.npz"))
    for place in (store / "checkpoints").glob("*.json"):
        record = {**json.loads(place.read_text()), "schema": "headspan.sweep-checkpoint/1"}
        place.write_text(json.dumps(record))


def test_results_of_format_1_are_computed_anew_and_none_is_lost(store: Path, series: Path, client: Any) -> None:
    turn_into_format_1(store)
    before = files(store)
    with pytest.raises(HeadspanError, match=r"in the older format 1, .* with headspan 0\.0\.9, or run the sweep again"):
        open_store(store)
    assert files(store) == before
    summary = sweep(series, store, lenses="ranks", client=client)
    assert (summary.done, summary.reused, list(summary.failures)) == (3, 0, [])
    after = files(store)
    groups = {name: text for name, text in before.items() if name.startswith("results.zarr")}
    assert groups
    assert all(after[name.replace("results.zarr", "results.format-1.zarr")] == text for name, text in groups.items())
    parts = {name: text for name, text in before.items() if name.startswith("parts")}
    assert parts.items() <= after.items()
    assert json.loads(after["manifest.format-1.json"]) == json.loads(before["manifest.json"])
    assert list(open_store(store)["run/ranks"]["step"].values) == [0, 10, 100]


@pytest.mark.parametrize(
    ("number", "changes", "message"),
    [
        (0, {"series": ["run"]}, r"older format 0, written by headspan 0\.0\.9.* Nothing in it was changed: read it"),
        (0, {"series": {"run": {"first": "x"}}}, r"older format 0, .* Nothing in it was changed: read it with"),
        (99, {}, r"newer format 99, .* Nothing in it was changed: update headspan"),
    ],
)
def test_what_cannot_be_read_is_refused_and_left_as_it_is(
    number: int, changes: dict[str, Any], message: str, store: Path, series: Path, client: Any
) -> None:
    write_older(store, number, **changes)
    before = files(store)
    with pytest.raises(StoreError, match=message):
        sweep(series, store, lenses="ranks", client=client)
    with pytest.raises(StoreError, match=message):
        open_store(store)
    assert files(store) == before


def test_a_result_in_another_format_is_named_and_left_as_it_is(store: Path, series: Path, client: Any) -> None:
    changed = sorted((store / "parts" / "ranks").glob("*.npz"))[0]
    with np.load(changed) as archive:
        arrays = dict(archive)
    header = {**json.loads(arrays.pop("header").tobytes()), "schema": "headspan.sweep-part/0"}
    np.savez(changed, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)
    before = part_bytes(store)
    write_checkpoint(series / "step-200", seed=200)
    summary = sweep(series, store, lenses="ranks", client=client)
    (failure,) = summary.failures
    assert (summary.done, failure.what) == (1, "the group ranks of run")
    assert f"{changed.name}' is in the format 'headspan.sweep-part/0'" in failure.reason
    assert before.items() <= part_bytes(store).items()
