"""Files that the kernel refuses to open are named, the rest goes on, and what is finished stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headspan.errors import HeadspanError, StoreError
from headspan.sweeps import Summary, open_store, sweep
from tests.robustness.sweep_models import client_in_this_process, part_bytes, write_series
from tests.robustness.unprivileged import as_nobody_special


@pytest.fixture
def series(tmp_path: Path) -> Path:
    return write_series(tmp_path / "run", (0, 10, 100))


@pytest.fixture
def closed(series: Path) -> Iterator[Any]:
    """Takes all permissions from a file or folder; they are given back at the end, or by calling it again."""
    changed: dict[Path, int] = {}

    def close(path: Path) -> None:
        if path in changed:
            path.chmod(changed.pop(path))
            return
        changed[path] = path.stat().st_mode
        path.chmod(0)

    yield close
    for path in list(changed):
        close(path)


def swept(series: Path, store: Path) -> Summary:
    """A sweep to which permissions apply."""

    def run() -> Summary:
        with client_in_this_process() as client:
            return sweep(series, store, lenses="ranks", client=client)

    return as_nobody_special(run, series.parent)


@pytest.mark.parametrize("what", ["model.safetensors", "config.json", "."])
def test_a_checkpoint_that_may_not_be_read_is_named_and_the_rest_goes_on(
    what: str, series: Path, closed: Any, tmp_path: Path
) -> None:
    closed(series / "step-10" / what)
    summary = swept(series, tmp_path / "store")
    (failure,) = summary.failures
    assert summary.done == 2
    assert "step-10" in failure.what
    assert "Permission denied" in failure.reason
    assert list(open_store(tmp_path / "store")["run/ranks"]["step"].values) == [0, 100]
    closed(series / "step-10" / what)
    again = swept(series, tmp_path / "store")
    assert (again.done, again.reused, list(again.failures)) == (1, 2, [])


def test_what_was_finished_before_permission_was_revoked_stays(series: Path, closed: Any, tmp_path: Path) -> None:
    swept(series, tmp_path / "store")
    before = part_bytes(tmp_path / "store")
    closed(series / "step-10" / "model.safetensors")
    summary = swept(series, tmp_path / "store")
    assert [failure.reason.rpartition(": ")[2] for failure in summary.failures] == ["Permission denied"]
    assert (summary.done, part_bytes(tmp_path / "store")) == (0, before)
    assert list(open_store(tmp_path / "store")["run/ranks"]["step"].values) == [0, 10, 100]


def test_a_series_or_store_that_may_not_be_opened_is_one_line(series: Path, closed: Any, tmp_path: Path) -> None:
    swept(series, tmp_path / "store")
    before = part_bytes(tmp_path / "store")
    closed(tmp_path / "store")
    with pytest.raises(StoreError, match=r"store.*: Permission denied"):
        swept(series, tmp_path / "store")
    closed(tmp_path / "store")
    assert part_bytes(tmp_path / "store") == before
    closed(series)
    with pytest.raises(HeadspanError, match=r"'.*run'.*Permission denied"):
        swept(series, tmp_path / "store")


def test_results_that_may_not_be_written_fail_by_name(series: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    swept(series, store)
    before = part_bytes(store)
    for name in list(before)[:2]:
        (store / name).unlink()
    (store / "parts" / "ranks").chmod(0o555)
    summary = swept(series, store)
    (store / "parts" / "ranks").chmod(0o755)
    assert summary.done == 0
    assert len(summary.failures) == 2
    assert all("parts/ranks/" in one.reason and "Permission denied" in one.reason for one in summary.failures)
    assert swept(series, store).done == 2
    assert part_bytes(store) == before
