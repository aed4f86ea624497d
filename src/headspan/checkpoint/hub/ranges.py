"""Arithmetic on byte ranges: half-open intervals [start, end) of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ByteRange = tuple[int, int]


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
