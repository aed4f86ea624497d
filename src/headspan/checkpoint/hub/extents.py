"""Pieces of a remote file on this disk.

A piece is a file named `<start>-<end>-<checksum>` in a folder named for the content hash of the whole. It gets its name
when it is complete, so a process that dies leaves no half piece, and several processes may write the same folder: equal
names have equal content. A piece whose length or checksum is wrong is removed and read again.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headspan.checkpoint.hub.cache_folder import save
from headspan.checkpoint.hub.ranges import ByteRange

PIECE_BYTES = 8 * 2**20
"""What an interrupted process loses at most, and what is read to check a checksum."""
PIECE_NAME = re.compile(r"(\d{1,18})-(\d{1,18})-([0-9a-f]{8})")


@dataclass(frozen=True)
class Piece:
    """One stored run of bytes."""

    start: int
    end: int
    checksum: str
    path: Path

    def content(self) -> bytes | None:
        """The bytes, or None if they are gone or damaged."""
        try:
            if self.path.stat().st_size == self.end - self.start:
                content = self.path.read_bytes()
                if checksum(content) == self.checksum and len(content) == self.end - self.start:
                    return content
            self.path.unlink(missing_ok=True)
        except OSError:
            pass
        return None


def checksum(content: bytes | bytearray) -> str:
    return f"{zlib.crc32(content):08x}"


@dataclass(frozen=True)
class Extents:
    """The pieces of one remote file."""

    folder: Path
    size: int

    def pieces(self) -> list[Piece]:
        """Every stored piece, in the order of the file."""
        try:
            matches = [(PIECE_NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        except OSError:
            return []
        found = [Piece(int(m[1]), int(m[2]), m[3], path) for m, path in matches if m is not None]
        inside = [piece for piece in found if piece.start < piece.end <= min(self.size, piece.start + PIECE_BYTES)]
        return sorted(inside, key=lambda piece: (piece.start, -piece.end))

    def stored(self, wanted: ByteRange) -> Iterator[tuple[int, bytes]]:
        """Position and content of intact pieces that touch `wanted`, in order; they may overlap or leave holes."""
        for piece in self.pieces():
            if piece.start < wanted[1] and piece.end > wanted[0]:
                content = piece.content()
                if content is not None:
                    yield piece.start, content

    def store(self, start: int, content: bytes | bytearray) -> None:
        """Keep a run of bytes; where the disk refuses, go on without."""
        if content:
            save(self.folder / f"{start}-{start + len(content)}-{checksum(content)}", content)


class PieceWriter:
    """Cuts a stream into pieces and stores each when it is full; what is left is stored at the end, come what may."""

    def __init__(self, extents: Extents, start: int) -> None:
        self.extents, self.start, self.buffer = extents, start, bytearray()

    def __enter__(self) -> PieceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.extents.store(self.start, self.buffer)

    def add(self, chunk: bytes) -> None:
        self.buffer += chunk
        while len(self.buffer) >= PIECE_BYTES:
            self.extents.store(self.start, self.buffer[:PIECE_BYTES])
            self.start += PIECE_BYTES
            del self.buffer[:PIECE_BYTES]
