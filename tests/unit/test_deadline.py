"""A deadline for what has none: the result, the error, or neither in time."""

from __future__ import annotations

import threading

import pytest

from headspan.checkpoint.hub.patience import within


def test_a_result_in_time_is_returned_and_not_discarded() -> None:
    discarded: list[int] = []
    assert within(10, lambda: 7, discarded.append) == 7
    assert discarded == []


def test_an_error_in_time_is_raised_where_it_is_waited_for() -> None:
    def fail() -> int:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        within(10, fail, lambda _: None)


def test_a_result_that_comes_too_late_is_discarded() -> None:
    go, gone = threading.Event(), threading.Event()
    discarded: list[int] = []

    def slow() -> int:
        go.wait(10)
        return 7

    def discard(result: int) -> None:
        discarded.append(result)
        gone.set()

    with pytest.raises(TimeoutError, match=r"^$"):
        within(0.05, slow, discard)
    assert discarded == []
    go.set()
    assert gone.wait(10)
    assert discarded == [7]
