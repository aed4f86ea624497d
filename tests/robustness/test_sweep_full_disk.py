"""On a disk that is full, finished results survive, nothing is half-written, and the sweep goes on when there is room.

The disk is really full: see `small_disk.py`.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from tests.robustness.small_disk import LENSES, LIMIT, command, ways
from tests.robustness.sweep_models import part_bytes, write_series

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("full_disk")]  # one run of all sweeps, looked at by all tests
REFUSALS = {LIMIT: "File too large"}
STEPS = 6


@dataclass(frozen=True)
class Told:
    """What the sweeps said of themselves, by way and state of the disk, and where their stores were copied to."""

    folder: Path
    summaries: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("full")
    series = write_series(folder / "run", range(STEPS))
    done = subprocess.run(command(series, folder), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return Told(folder, json.loads(done.stdout))


@pytest.mark.parametrize("way", ways())
def test_what_was_finished_before_the_disk_was_full_is_whole(way: str, told: Told) -> None:
    summary, store = told.summaries[way]["full"], told.folder / way / "full"
    kept, whole = part_bytes(store), part_bytes(told.folder / "whole")
    assert 0 < len(kept) < len(whole) == 2 * STEPS
    # A task that was under way when the sweep stopped may yet find room.
    assert summary["done"] <= len(kept) <= summary["done"] + 1
    assert kept.items() <= whole.items()
    assert sum(summary["seen"].values()) == len(kept)
    assert not list(store.rglob(".part-*"))


@pytest.mark.parametrize("way", ways())
def test_what_did_not_fit_is_listed_with_the_reason(way: str, told: Told) -> None:
    summary = told.summaries[way]["full"]
    named = [failure for failure in summary["failures"] if " of run at step " in failure["what"]]
    assert len(named) == 2 * STEPS - summary["done"]
    assert all(REFUSALS.get(way, "No space left on device") in failure["reason"] for failure in summary["failures"])
    # A full disk ends the sweep, since all else would be computed in vain; one file too large for it does not.
    assert {failure["state"] for failure in named} == ({"failed"} if way == LIMIT else {"failed", "not run"})


@pytest.mark.parametrize("way", ways())
def test_a_disk_that_is_full_when_groups_are_written_loses_nothing(way: str, told: Told) -> None:
    state, lenses = ("full", ("ranks",)) if way == LIMIT else ("fuller", LENSES)
    summary, store = told.summaries[way][state], told.folder / way / state
    groups = {failure["what"] for failure in summary["failures"] if failure["what"].startswith("the group")}
    assert groups == {f"the group {lens} of run" for lens in lenses}
    for lens in lenses:
        assert len(list((store / "parts" / lens).glob("*.npz"))) == STEPS == summary["seen"][lens]
        assert not (store / "results.zarr" / "run" / lens).exists()
    assert not list(store.rglob(".part-*"))


@pytest.mark.parametrize("way", ways())
def test_with_room_again_the_sweep_does_what_was_left_and_no_more(way: str, told: Told) -> None:
    summaries, store = told.summaries[way], told.folder / way / "enough"
    for before, after in pairwise(summaries):
        assert summaries[after]["reused"] == len(part_bytes(told.folder / way / before))
        assert summaries[after]["done"] == 2 * STEPS - summaries[after]["reused"]
    assert summaries["enough"]["failures"] == []
    assert part_bytes(store) == part_bytes(told.folder / "whole")
    for lens in LENSES:
        trees = [
            xr.open_datatree(place / "results.zarr" / "run" / lens, engine="zarr", chunks=None).load()
            for place in (store, told.folder / "whole")
        ]
        xr.testing.assert_identical(*trees)
