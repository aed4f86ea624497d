"""A checksum inside the file that it is of: a flipped bit is noticed when the file is read, not believed.

A state is its SHA-256 on a line of its own and the content behind it. An archive (a zip file, `.npz`) has it as its
comment, which every reader of zip files passes over. A netCDF file has it behind its end, where HDF5 never looks. A
folder (a Zarr group) has it in a small file of its own.
Files of older versions have none, and are read as they are.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from headspan.errors import HeadspanError

BEGINNING = b"headspan sha256 "
LINE = re.compile(BEGINNING + rb"([0-9a-f]{64})\n")
FOLDER_SEAL = ".sha256"
"""The file in a folder that holds the checksum of the others."""
LENGTH = 81
"""Bytes of the line."""
BLOCK = 2**20
"""Bytes read at a time."""


def seal_line(content: bytes) -> bytes:
    """The line that names the content."""
    return _line(hashlib.sha256(content).hexdigest())


def _line(digest: str) -> bytes:
    return f"headspan sha256 {digest}\n".encode()


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


def folder_digest(folder: Path) -> str:
    """A checksum of all files of a folder but the one that holds it, by their names and contents."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != FOLDER_SEAL:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{path.relative_to(folder)} {content}\n".encode())
    return digest.hexdigest()


def sealed_archive(content: bytes) -> bytes:
    """A zip file without a comment, with its checksum as its comment."""
    return content[:-2] + LENGTH.to_bytes(2, "little") + seal_line(content)


def check_archive(content: bytes) -> bool:
    """Whether a zip file has its checksum, which then fits; False for one of an older version, without any."""
    found = LINE.fullmatch(content[-LENGTH:])
    if found is None and content[-22:-18] == b"PK\5\6":  # the end of a zip file without a comment
        return False
    stated = content[-LENGTH - 2 : -LENGTH] == LENGTH.to_bytes(2, "little")
    if found is None or not stated or seal_line(content[: -LENGTH - 2] + b"\0\0") != found[0]:
        raise HeadspanError("its content is not what its checksum says")
    return True


def seal_end(path: Path) -> None:
    """Put the checksum of a file behind its end."""
    with path.open("rb") as file:
        line = _line(hashlib.file_digest(file, "sha256").hexdigest())
    with path.open("ab") as file:
        file.write(line)


def check_end(path: Path) -> None:
    """Refuse a file that differs from the checksum behind its end; one that has none is as good as any."""
    size = path.stat().st_size - LENGTH
    with path.open("rb") as file:
        file.seek(max(size - LENGTH, 0))
        end = file.read()
        if BEGINNING not in end:
            return
        file.seek(0)
        digest = hashlib.sha256()
        while block := file.read(min(BLOCK, max(size - file.tell(), 0))):
            digest.update(block)
    if _line(digest.hexdigest()) != end[-LENGTH:]:
        raise HeadspanError("its content is not what its checksum says")
