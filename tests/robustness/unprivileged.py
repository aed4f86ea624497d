"""Running a function as one to whom the kernel may refuse a file, also where tests run as root.

Root reads and writes whatever permissions say, by two capabilities. A thread can give them up, and the threads that it
starts do not have them either; all others keep theirs. A file without permissions is then refused by the kernel itself.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
VERSION = 0x20080522
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2


def renounce() -> None:
    """Give up, in this thread, the right to read and write against permissions; without it to begin with, nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(VERSION, 0)
    words = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    if libc.capget(header, words) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for place in range(3):
        words[place] &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    if libc.capset(header, words) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def as_nobody_special(function: Callable[[], T], folder: Path) -> T:
    """What the function returns in a thread to which permissions apply; that they do is tried in `folder` first."""

    def inside() -> T:
        renounce()
        closed = folder / "closed"
        closed.touch()
        closed.chmod(0)
        assert not os.access(closed, os.R_OK, effective_ids=True)
        closed.unlink()
        return function()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(inside).result()
