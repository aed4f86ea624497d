"""Kill -9 a worker, the client, the scheduler: nothing finished is lost, nothing is half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from headspan.sweeps import open_store, sweep
from tests.robustness.sweep_models import client_in_this_process, part_bytes, write_series

STEPS = tuple(range(0, 80, 10))
PATIENCE = 900.0


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.05)


@contextmanager
def started(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def undisturbed(series: Path, store: Path) -> dict[str, bytes]:
    with client_in_this_process() as client:
        sweep(series, store, lenses="affinity", client=client)
    return part_bytes(store)


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_and_the_number_of_workers_changes_no_bit(tmp_path: Path) -> None:
    series, store, mark = write_series(tmp_path / "run", STEPS), tmp_path / "store", tmp_path / "died"
    preload = str(Path(__file__).with_name("dying_worker.py"))
    command = ("headspan", "sweep", str(series), "-o", str(store), "--lenses", "affinity", "--workers", "2")
    with started(*command, HEADSPAN_TEST_DEATH=str(mark), DASK_DISTRIBUTED__WORKER__PRELOAD=preload) as process:
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert mark.exists()
    assert f"{len(STEPS)} results computed, 0 found finished, 0 failed" in output
    assert "Traceback" not in output
    assert part_bytes(store) == undisturbed(series, tmp_path / "other")
    assert not list(store.rglob(".part-*"))


@pytest.mark.slow
def test_a_killed_client_takes_its_workers_along_and_the_next_call_goes_on(tmp_path: Path) -> None:
    series, store = write_series(tmp_path / "run", STEPS), tmp_path / "store"
    with started(
        "headspan", "sweep", str(series), "-o", str(store), "--lenses", "affinity", "--workers", "2"
    ) as process:
        wait_until(lambda: len(part_bytes(store)) >= 2, process)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert workers
    assert not alive
    finished = part_bytes(store)
    assert len(open_store(store)["run/affinity"]["step"]) == len(finished) >= 2
    with client_in_this_process() as client:
        summary = sweep(series, store, lenses="affinity", client=client)
    assert (summary.reused, summary.done) == (len(finished), len(STEPS) - len(finished))
    assert finished.items() <= part_bytes(store).items()
    assert part_bytes(store) == undisturbed(series, tmp_path / "other")


@pytest.mark.slow
def test_a_sweep_on_a_scheduler_by_address_survives_the_scheduler(tmp_path: Path) -> None:
    series, store, contact = write_series(tmp_path / "run", STEPS), tmp_path / "store", tmp_path / "scheduler.json"
    scheduling = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    working = ("distributed.cli.dask_worker", "--nthreads", "1", "--no-dashboard", "--scheduler-file", str(contact))
    with started(*scheduling, "--scheduler-file", str(contact)) as scheduler:
        wait_until(contact.exists, scheduler)
        import json

        address = json.loads(contact.read_text())["address"]
        with started(*working, "--death-timeout", "60", "--local-directory", str(tmp_path / "scratch")) as worker:
            command = ("headspan", "sweep", str(series), "-o", str(store), "--lenses", "affinity")
            with started(*command, "--scheduler", address) as client:
                wait_until(lambda: len(part_bytes(store)) >= 1, client)
                scheduler.kill()
                output, _ = client.communicate(timeout=PATIENCE)
            worker.terminate()
            worker.wait(PATIENCE)
    finished = part_bytes(store)
    assert finished
    if len(finished) < len(STEPS):
        assert client.returncode == 3, output
        assert "the connection to the scheduler was lost" in output
    assert "Traceback" not in output
    with client_in_this_process() as client_here:
        summary = sweep(series, store, lenses="affinity", client=client_here)
    assert (summary.reused, summary.done) == (len(finished), len(STEPS) - len(finished))
