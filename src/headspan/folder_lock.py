"""One writer of a folder at a time.

The lock is the kernel's (`flock`), not the presence of a file. It ends with the process that holds it, however that
ends, so there is no stale lock to find or remove and no clock to trust. The file says who holds it, for the message.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headspan.errors import HeadspanError
from headspan.input_files import Error, json_object

LOCK = "lock"
"""Name of the file."""


@contextmanager
def locked(folder: Path, what: str, error: Error = HeadspanError) -> Iterator[None]:
    """Hold the lock of a folder within the block; refused at once if another process holds it. `what` is who writes."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        raise error(f"cannot lock '{folder}': {problem.strerror or problem}") from problem
    try:
        _take(handle, folder, what, error)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _take(handle: int, folder: Path, what: str, error: Error) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        raise error(
            f"another {what} is writing to '{folder}' ({_holder(handle)}); wait for it, or choose another folder"
        ) from problem
    except OSError as problem:
        raise error(
            f"'{folder}' lies where files cannot be locked ({problem.strerror}); choose another disk"
        ) from problem
    os.ftruncate(handle, 0)
    # On a full disk the lock holds all the same, without a name.
    with suppress(OSError):
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)


def _holder(handle: int) -> str:
    try:
        held = json_object(os.pread(handle, 4096, 0), "the lock")
        return f"process {int(held['pid'])} on {held['host']}"
    except (HeadspanError, ValueError, KeyError, TypeError):
        return "a process that has not said its name"
