"""A checksum inside the file that it is of: a flipped bit is noticed when the file is read, not believed.

A state is its SHA-256 on a line of its own and the content behind it. An archive (a zip file, `.npz`) has it as its
comment, which every reader of zip files passes over. Files of older versions have neither, and are read as they are.
"""

from __future__ import annotations

import hashlib
import re

from headspan.errors import HeadspanError

LINE = re.compile(rb"headspan sha256 ([0-9a-f]{64})\n")
LENGTH = 81
"""Bytes of the line."""


def seal_line(content: bytes) -> bytes:
    """The line that names the content."""
    return f"headspan sha256 {hashlib.sha256(content).hexdigest()}\n".encode()


def sealed(content: bytes) -> bytes:
    """A state with its checksum before it."""
    return seal_line(content) + content


def unsealed(content: bytes, older: bytes) -> bytes:
    """The state behind its checksum; one of an older version begins with `older` and has none."""
    found = LINE.match(content)
    if found is None and content.startswith(older):
        return content
    if found is None or seal_line(content[LENGTH:]) != found[0]:
        raise HeadspanError("its content is not what its checksum says")
    return content[LENGTH:]


def sealed_archive(content: bytes) -> bytes:
    """A zip file without a comment, with its checksum as its comment."""
    return content[:-2] + LENGTH.to_bytes(2, "little") + seal_line(content)


def check_archive(content: bytes) -> bool:
    """Whether a zip file has its checksum, which then fits; False for one of an older version, without any."""
    found = LINE.fullmatch(content[-LENGTH:])
    if found is None and content[-22:-18] == b"PK\5\6":  # the end of a zip file without a comment
        return False
    if found is None or seal_line(content[: -LENGTH - 2] + b"\0\0") != found[0]:
        raise HeadspanError("its content is not what its checksum says")
    return True
