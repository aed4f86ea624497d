"""A time limit ends work in whatever thread it runs, and nothing else."""

from __future__ import annotations

import threading
import time

import pytest

import headspan
from headspan.errors import ArgumentError, TimeLimit
from headspan.threads import time_limit


def endless() -> None:
    while True:
        time.sleep(0.001)


def test_work_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(TimeLimit, match=r"stopped after 0\.05 s, its time limit"), time_limit(0.05):
        endless()


def test_it_is_stopped_in_a_thread_of_a_worker_too() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            with time_limit(0.05):
                endless()
        except TimeLimit as problem:
            caught.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert len(caught) == 1


def test_an_error_that_catches_everything_does_not_hide_the_limit() -> None:
    def careless() -> None:
        while True:
            try:
                endless()
            except Exception:  # noqa: BLE001
                continue

    with pytest.raises(TimeLimit, match="stopped"), time_limit(0.05):
        careless()


def test_work_in_time_is_left_alone() -> None:
    with time_limit(600):
        found = sum(range(10))
    with time_limit(None):
        found += 1
    assert found == 46
    assert threading.active_count() < 50


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_limit_needs_time(seconds: float) -> None:
    with pytest.raises(ArgumentError, match="leaves no time"), time_limit(seconds):
        pass


def test_a_lens_has_a_limit_of_its_own() -> None:
    with pytest.raises(TimeLimit, match="its time limit"):
        headspan.spectra("demo", time_limit=0.001)
