"""One sweep at a time in a store.

The lock is the kernel's (`flock`), not the presence of a file: it ends with the process that holds it, however that
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

from headspan.errors import StoreError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a store within the block; refused at once if another process holds it."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as problem:
        raise StoreError(f"cannot lock the store '{path.parent}': {problem.strerror or problem}") from problem
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise StoreError(
                f"another sweep is writing to '{path.parent}' ({_holder(handle)}); wait for it, or choose another store"
            ) from problem
        except OSError as problem:
            raise StoreError(
                f"the store '{path.parent}' lies where files cannot be locked ({problem.strerror}); choose another disk"
            ) from problem
        os.ftruncate(handle, 0)
        # On a full disk the lock holds all the same, without a name.
        with suppress(OSError):
            os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    try:
        held = json.loads(os.pread(handle, 4096, 0))
        return f"process {int(held['pid'])} on {held['host']}"
    except (ValueError, KeyError, TypeError):
        return "a process that has not said its name"
