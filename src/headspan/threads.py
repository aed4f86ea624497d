"""Decomposing many small matrices on one thread.

LAPACK works through a batch one matrix at a time and lets every thread take part in each. On matrices of a head's size
the threads then wait for each other more than they work: 10,296 symmetric 128 x 128 eigenvalue problems took 7 s on one
thread of a two-core machine and 95 s on two while the other core was busy; QR of 144 tall matrices 1 s and 58 s.

An end to work that takes too long, in whatever thread it runs.

After the given seconds a second thread asks the interpreter to raise `TimeLimit` in the first. It is raised between two
steps of Python, so a single long operation of torch ends first. Nothing is left running.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from headspan.errors import ArgumentError, TimeLimit


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block, torch uses one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Expired(BaseException):
    """Raised from outside; not an Exception, so that no handler on the way takes it for its own."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Within the block, work of this thread ends with `TimeLimit` after `seconds`; never, if there are none."""
    if seconds is None:
        yield
        return
    if not seconds > 0:
        raise ArgumentError(f"time_limit = {seconds} leaves no time; give seconds above 0")
    lock, finished, worker = threading.Lock(), False, ctypes.c_ulong(threading.get_ident())
    ask = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def expire() -> None:
        with lock:
            if not finished:
                ask(worker, ctypes.py_object(_Expired))

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    try:
        try:
            timer.start()  # within the reach of the handler: a busy machine may take longer than `seconds` to start it
            yield
        finally:
            timer.cancel()
            with lock:
                finished = True
                ask(worker, None)  # whatever was asked for and has not been raised yet comes too late
    except _Expired as problem:
        raise TimeLimit(f"stopped after {seconds:g} s, its time limit") from problem
