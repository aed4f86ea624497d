"""A sweep resumes, does not depend on its workers, and says what failed while the rest goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import headspan
from headspan.errors import ArgumentError, StoreError
from headspan.heads import Heads
from headspan.lenses.catalog import lens as lens_of
from headspan.sweeps import open_store, session, sweep, tasks
from headspan.sweeps.store import Store
from tests.robustness.sweep_models import client_in_this_process, part_bytes, write_checkpoint, write_series


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with client_in_this_process() as client:
        yield client


@pytest.fixture
def series(tmp_path: Path) -> Path:
    return write_series(tmp_path / "run", (0, 10, 100))


def test_a_store_holds_what_the_lens_gives_for_every_step(series: Path, client: Any, tmp_path: Path) -> None:
    summary = sweep(series, tmp_path / "store", lenses="ranks,affinity", client=client)
    assert (summary.done, summary.reused, list(summary.failures)) == (6, 0, [])
    tree = open_store(tmp_path / "store")
    kept = tree["run/affinity/OK"].to_dataset()
    assert kept["projection_kernel"].dims == ("model", "step", "src", "dst")
    assert list(kept["step"].values) == [0, 10, 100]
    for step in (0, 10, 100):
        bare = headspan.affinity(series / f"step-{step}")
        xr.testing.assert_identical(
            kept["projection_kernel"].sel(model="run", step=step).drop_vars(["model", "step"]),
            bare["OK"]["projection_kernel"],
        )
    assert float(kept["projection_kernel"].sel(model="run", step=10, src="0.1", dst=(1, 0))) > 0
    with pytest.raises(ArgumentError, match=r"src='L7H0' is not on this axis, which has L0H0 to L1H1"):
        kept["projection_kernel"].sel(src="L7H0")
    opened_by_zarr = xr.open_zarr(tmp_path / "store" / "results.zarr" / "run" / "ranks", chunks=None)
    assert opened_by_zarr["rank_Q"].dims == ("model", "step", "head")


def test_one_corrupt_checkpoint_of_twenty_is_named_and_the_rest_goes_on(client: Any, tmp_path: Path) -> None:
    series = write_series(tmp_path / "run", range(20))
    weights = series / "step-7" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:300])
    summary = sweep(series, tmp_path / "store", lenses="ranks", client=client)
    (failure,) = summary.failures
    assert (summary.done, failure.state) == (19, "failed")
    assert "step-7" in failure.what
    assert "model.safetensors" in failure.reason
    steps = open_store(tmp_path / "store")["run/ranks"]["step"].values
    assert list(steps) == [step for step in range(20) if step != 7]


def test_two_steps_with_the_same_weights_are_flagged_and_computed_once(client: Any, tmp_path: Path) -> None:
    series = write_series(tmp_path / "run", (0, 1, 2, 3), seeds=(5, 6, 6, 7))
    summary = sweep(series, tmp_path / "store", lenses=("ranks", "drift"), client=client)
    assert list(summary.identical) == ["run: step 2 has the same weights as step 1"]
    tree = open_store(tmp_path / "store")
    np.testing.assert_array_equal(tree["run/ranks"]["identical_to"].values[0], [np.nan, 2, 1, np.nan])
    drift = tree["run/drift"].to_dataset()
    assert list(drift["step"].values) == [1, 2, 3]
    np.testing.assert_array_equal(drift["previous_step"].values[0], [0, 1, 2])
    moved = tree["run/drift/Q"]["grassmann"].max("head").values[0]
    assert moved[1] == 0
    assert (moved[[0, 2]] > 0.1).all()
    assert len(part_bytes(tmp_path / "store")) == 3 + 3


def test_a_checkpoint_that_changed_is_computed_again_and_the_old_result_stays(
    series: Path, client: Any, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    sweep(series, store, lenses="ranks", client=client)
    before = part_bytes(store)
    (series / "step-10").rename(tmp_path / "old")
    write_checkpoint(series / "step-10", seed=99)
    assert sweep(series, store, lenses="ranks", client=client).done == 1
    assert before.items() <= part_bytes(store).items()


def test_weights_that_change_under_the_sweep_are_refused(
    series: Path, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describing = session.describe

    def then_overwrite(source: str, *more: Any) -> Any:
        found = describing(source, *more)
        if source.endswith("step-10"):
            (series / "step-10" / "model.safetensors").write_bytes(
                (series / "step-0" / "model.safetensors").read_bytes()
            )
        return found

    monkeypatch.setattr(session, "describe", then_overwrite)
    summary = sweep(series, tmp_path / "store", lenses="ranks", client=client)
    (failure,) = summary.failures
    assert "changed while the sweep ran" in failure.reason


def test_a_second_sweep_on_a_store_is_refused_with_the_name_of_the_first(
    series: Path, client: Any, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    sweep(series, store, lenses="ranks", client=client)
    with (
        Store(store).lock(),
        pytest.raises(StoreError, match=rf"another sweep is writing.*process {os.getpid()} on"),
    ):
        sweep(series, store, lenses="ranks", client=client)
    assert sweep(series, store, lenses="ranks", client=client).reused == 3


def test_a_damaged_part_is_computed_again(series: Path, client: Any, tmp_path: Path) -> None:
    store = tmp_path / "store"
    sweep(series, store, lenses="ranks", client=client)
    before = part_bytes(store)
    damaged = next(store.glob("parts/ranks/*.npz"))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert sweep(series, store, lenses="ranks", client=client).done == 1
    assert part_bytes(store) == before


def test_further_steps_and_lenses_join_what_is_there(series: Path, client: Any, tmp_path: Path) -> None:
    store = tmp_path / "store"
    sweep(series, store, lenses="ranks", client=client)
    (series / "step-0").rename(tmp_path / "gone")
    write_checkpoint(series / "step-200", seed=200)
    summary = sweep(series, store, lenses="ranks,affinity", client=client)
    tree = open_store(store)
    assert list(tree["run/ranks"]["step"].values) == [0, 10, 100, 200]
    assert list(tree["run/affinity"]["step"].values) == [10, 100, 200]
    assert summary.done == 1 + 3
    assert not summary.failures


class Unspeakable(Exception):
    """An error that cannot be sent to another process."""

    def __reduce__(self) -> Any:
        raise TypeError("this error stays here")


def test_an_error_that_cannot_be_sent_is_told_as_text(
    series: Path, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(task: Any, time_limit: float | None) -> None:
        raise Unspeakable("two\nlines")

    monkeypatch.setattr(tasks, "_result", fails)
    summary = sweep(series, tmp_path / "store", lenses="ranks", client=client)
    assert [failure.reason for failure in summary.failures] == [r"Unspeakable: two\nlines"] * 3


def test_a_lens_that_takes_too_long_fails_alone_and_is_computed_when_there_is_time(
    series: Path, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurement = lens_of("ranks").part("measurement")
    assert measurement is not None
    measure, slow = measurement.measure, str(series / "step-10")

    def slow_at_one_step(heads: Heads, **options: Any) -> xr.Dataset:
        end = time.monotonic() + (60.0 if heads.checkpoint.source == slow else 0.0)
        while time.monotonic() < end:
            time.sleep(0.01)
        found: xr.Dataset = measure(heads, **options)
        return found

    monkeypatch.setattr(measurement, "measure", slow_at_one_step)
    store = tmp_path / "store"
    summary = sweep(series, store, lenses="ranks,affinity", client=client, time_limit=5)
    assert [(one.what, one.reason) for one in summary.failures] == [
        ("ranks of run at step 10", "stopped after 5 s, its time limit")
    ]
    assert summary.done == 5
    tree = open_store(store)
    assert list(tree["run/ranks"]["step"].values) == [0, 100]
    assert tree["run/ranks"].attrs["missing_steps"] == "10"
    monkeypatch.undo()
    again = sweep(series, store, lenses="ranks,affinity", client=client, time_limit=60)
    assert (again.done, again.reused, list(again.failures)) == (1, 5, [])
    assert list(open_store(store)["run/ranks"]["step"].values) == [0, 10, 100]
