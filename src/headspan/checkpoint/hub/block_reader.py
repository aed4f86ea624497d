"""A remote file as the header readers take it: something to read and seek in."""

from __future__ import annotations

import io
from typing import BinaryIO, cast

from headspan.checkpoint.hub.ranged_file import RangedFile

BLOCK_BYTES = 128 * 1024
"""Headers are read in blocks of this size; nearly every header of a large model fits into one."""


def opened(file: RangedFile) -> BinaryIO:
    """`file`, at its first byte."""
    return cast("BinaryIO", BlockReader(file))


class BlockReader(io.RawIOBase):
    """Random access to a remote file, in aligned blocks that are each read once."""

    def __init__(self, file: RangedFile) -> None:
        self._file, self._position, self._blocks = file, 0, dict[int, bytearray]()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        if origin + offset < 0:
            raise OSError("a position before the start of the file")
        self._position = origin + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = min(self._position, self._file.size)
        end = self._file.size if size < 0 else min(start + size, self._file.size)
        if start == end:
            return b""
        blocks = range(start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1)
        absent = [
            (b * BLOCK_BYTES, min((b + 1) * BLOCK_BYTES, self._file.size)) for b in blocks if b not in self._blocks
        ]
        for (at, _), content in zip(absent, self._file.read(absent), strict=True):
            self._blocks[at // BLOCK_BYTES] = content
        self._position = end
        parts = (memoryview(self._blocks[block]) for block in blocks)
        offsets = (block * BLOCK_BYTES for block in blocks)
        return b"".join(part[max(start - at, 0) : end - at] for part, at in zip(parts, offsets, strict=True))
