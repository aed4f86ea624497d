"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headspan.errors import HeadspanError


def check_writable(path: Path, endings: Sequence[str] = ()) -> None:
    """Refuse a place that cannot be written to before any work is done for it; `endings` are those that are known."""
    _check_name(path)
    if path.is_dir():
        raise HeadspanError(f"cannot write '{path}': it is a folder; name a file in it")
    if endings and path.suffix not in endings:
        raise HeadspanError(f"cannot write '{path.name}': its ending is none of {', '.join(endings)}")
    if not path.absolute().parent.is_dir():
        raise HeadspanError(
            f"cannot write '{path}': there is no folder '{path.parent}'; make it, or choose another place"
        )


def _check_name(path: Path) -> None:
    """Refuse what no file can be called: too long, or with a null character."""
    try:
        path.lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise HeadspanError(f"cannot write '{str(path)[:80]}': {reason}; choose another place with -o") from problem


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse a file that is there already, unless it is meant to be overwritten."""
    _check_name(path)
    if path.exists() and not force:
        raise HeadspanError(f"'{path}' exists already; overwrite it with --force, or choose another place with -o")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; it takes the final name if the block succeeds and is removed if it does not."""
    check_writable(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise HeadspanError(f"cannot write '{path}': {reason}; choose another place with -o") from problem
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as problem:
        raise HeadspanError(f"cannot write '{path}': {problem.strerror or problem}") from problem
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
