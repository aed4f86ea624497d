"""A remote file of which only the ranges that are asked for are read.

1. What is wanted is compared with the pieces on disk; what is missing is joined into runs.
2. Runs and stored pieces are gone through in the order of the file: runs are downloaded and stored, pieces are read.
3. Every byte is copied to the ranges that wait for it, so memory holds what was asked for and one piece.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from huggingface_hub.utils import are_progress_bars_disabled

from headspan.checkpoint.hub.cache import ByteRange, Extents, PieceWriter
from headspan.checkpoint.hub.connection import Download
from headspan.errors import CheckpointError, HubError

WORTH_A_BAR = 4 * 2**20
GAP_BYTES = 2**20
"""Ranges no further apart than this are read in one request: at 10 MB/s a request's 0.1 s cost as much as this gap."""
BLOCK_BYTES = 128 * 1024
"""Headers are read in blocks of this size; nearly every header of a large model fits into one."""


def union(ranges: Iterable[ByteRange], gap: int = 0) -> list[ByteRange]:
    """The ranges sorted and joined where they overlap, touch, or leave at most `gap` bytes between them."""
    joined: list[ByteRange] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def difference(wanted: Iterable[ByteRange], held: Iterable[ByteRange]) -> list[ByteRange]:
    """What of `wanted` is not in `held`, sorted."""
    left: list[ByteRange] = []
    remaining = union(held)
    first = 0
    for start, end in union(wanted):
        while first < len(remaining) and remaining[first][1] <= start:
            first += 1
        position = start
        for held_start, held_end in remaining[first:]:
            if held_start >= end:
                break
            if held_start > position:
                left.append((position, held_start))
            position = max(position, held_end)
        if position < end:
            left.append((position, end))
    return left


def n_bytes(ranges: Iterable[ByteRange]) -> int:
    """The total length of ranges that do not overlap."""
    return sum(end - start for start, end in ranges)


class Gathering:
    """The contents of several ranges, filled from chunks that arrive in the order of the file.

    A buffer grows as bytes arrive, so that a length someone claims allocates nothing.
    """

    def __init__(self, ranges: Sequence[ByteRange]) -> None:
        self.ranges = list(ranges)
        self.buffers = [bytearray() for _ in ranges]
        self._open = sorted(range(len(self.ranges)), key=lambda index: self.ranges[index])

    def add(self, position: int, chunk: bytes | memoryview) -> None:
        """Take the part of `chunk`, which starts at `position` of the file, that each range is waiting for."""
        end = position + len(chunk)
        view = memoryview(chunk)
        complete = False
        for index in self._open:
            start, stop = self.ranges[index]
            if start >= end:
                break
            reached = start + len(self.buffers[index])
            if position <= reached < min(stop, end):
                self.buffers[index] += view[reached - position : min(stop, end) - position]
            complete |= stop <= end
        if complete:
            self._open = [index for index in self._open if self.ranges[index][1] > end]

    @property
    def is_whole(self) -> bool:
        return all(len(buffer) == end - start for buffer, (start, end) in zip(self.buffers, self.ranges, strict=True))


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of bytes that arrived; it draws on stderr if a person sees it and waits."""
    watched = sys.stderr.isatty() and sys.stdout.isatty() and not are_progress_bars_disabled()
    if total < WORTH_A_BAR or not watched:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(label), total=total)
        yield lambda n: progress.advance(task, n)


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
                with closing(self._download(position, end)) as chunks:
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

    def _download(self, start: int, end: int) -> Generator[bytes, None, None]:
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
