"""Waiting for something that has no deadline of its own.

A read timeout bounds each silence, not their sum: looking up a name, or a server that sends its headers one byte at a
time, can take for ever. So an exchange begins in a thread of its own, which is left behind when time is up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, action: Callable[[], T], discard: Callable[[T], None]) -> T:
    """What `action` returns or raises, or a TimeoutError; a result that comes too late is given to `discard`."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = action()
        except BaseException as problem:  # noqa: BLE001 - it is raised where the result is waited for
            if future.set_running_or_notify_cancel():
                future.set_exception(problem)
            return
        if future.set_running_or_notify_cancel():
            future.set_result(result)
        else:
            discard(result)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(timeout=seconds)
    except BaseException:
        # Cancelling fails only if the result has just come.
        if not future.cancel() and future.done() and future.exception() is None:
            discard(future.result())
        raise
