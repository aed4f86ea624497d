"""A remote file of which only the ranges that are asked for are read.

1. What is wanted is compared with the pieces on disk; what is missing is joined into runs.
2. Runs and stored pieces are gone through in the order of the file: runs are downloaded and stored, pieces are read.
3. Every byte is copied to the ranges that wait for it, so memory holds what was asked for and one piece.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from headspan.checkpoint.hub.download import Download
from headspan.checkpoint.hub.extents import Extents, PieceWriter
from headspan.checkpoint.hub.progress import progress_bar
from headspan.checkpoint.hub.ranges import ByteRange, Gathering, difference, n_bytes, union
from headspan.errors import CheckpointError, HubError

GAP_BYTES = 2**20
"""Ranges no further apart than this are read in one request: at 10 MB/s a request's 0.1 s cost as much as this gap."""


@dataclass(frozen=True, eq=False)
class RangedFile:
    """One file of one commit."""

    download: Download
    extents: Extents

    @property
    def name(self) -> str:
        return self.download.file.name

    @property
    def size(self) -> int:
        return self.download.file.size

    def read(self, ranges: Sequence[ByteRange]) -> list[bytearray]:
        """The bytes of each range, as the file's listed length allows."""
        for start, end in ranges:
            if not 0 <= start <= end <= self.size:
                raise CheckpointError(f"'{self.name}' is {self.size:,} bytes long and has no bytes {start}..{end}")
        gathering = Gathering(ranges)
        wanted = union(ranges)
        missing = difference(wanted, ((piece.start, piece.end) for piece in self.extents.pieces()))
        with progress_bar(f"{self.download.repo}: {self.name}", n_bytes(missing)) as advance:
            for start, end, stored in self._runs(wanted, missing):
                position = start
                if stored:
                    position = self._add_stored(gathering, start, end)
                with closing(self._downloaded(position, end)) as chunks:
                    for chunk in chunks:
                        gathering.add(position, chunk)
                        position += len(chunk)
                        advance(len(chunk))
        if not gathering.is_whole:
            raise HubError(f"'{self.name}' could not be read whole; open the model again")
        return gathering.buffers

    def _runs(self, wanted: list[ByteRange], missing: list[ByteRange]) -> list[tuple[int, int, bool]]:
        """What to download (False) and what to take from the disk (True), in the order of the file."""
        runs = union(missing, GAP_BYTES)
        stored = difference(wanted, runs)
        return sorted([(*run, False) for run in runs] + [(*part, True) for part in stored])

    def _add_stored(self, gathering: Gathering, start: int, end: int) -> int:
        """Take what the disk has from `start` on without a hole; the position that was reached."""
        position = start
        for at, content in self.extents.stored((start, end)):
            if at > position:
                break
            if at + len(content) > position:
                gathering.add(position, memoryview(content)[position - at :])
                position = at + len(content)
        return min(position, end)

    def _downloaded(self, start: int, end: int) -> Generator[bytes, None, None]:
        with PieceWriter(self.extents, start) as writer:
            for chunk in self.download.stream(start, end):
                writer.add(chunk)
                yield chunk

    def whole(self, most: int) -> bytes:
        """All of a small file, its content held against the hash that the Hub listed."""
        if self.size > most:
            raise CheckpointError(f"{self.name} is {self.size:,} bytes long; no real one exceeds {most:,}")
        content = bytes(self.read([(0, self.size)])[0])
        if content_digest(content, len(self.download.file.digest)) != self.download.file.digest:
            raise HubError(f"what {self.download.connection.host} sent as '{self.name}' is not the file it lists")
        return content


def content_digest(content: bytes, digits: int) -> str:
    """The hash the Hub lists for a file: SHA-256 with 64 digits, git's blob hash with 40."""
    if digits == 64:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
