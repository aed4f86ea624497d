"""Text files that a model is to read: refused where they are none."""

from __future__ import annotations

from pathlib import Path

from headspan.errors import HeadspanError

MAX_BYTES = 16 * 2**20


def file_text(path: Path) -> str:
    """The text of a file in UTF-8."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise HeadspanError(f"'{path}' is larger than {MAX_BYTES:,} bytes, more than any prompt")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise HeadspanError(f"'{path}' is not text in UTF-8 ({problem.reason}); save it in that encoding") from problem
    except OSError as problem:
        raise HeadspanError(f"'{path}' cannot be read: {problem.strerror}") from problem
