"""Arithmetic on byte ranges against sets of positions, and gathering against plain slices."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headspan.checkpoint.hub.cache import ByteRange
from headspan.checkpoint.hub.ranged_file import Gathering, difference, n_bytes, union

LENGTH = 60
RANGES = st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(sorted).map(tuple), max_size=8)


def positions(ranges: list[ByteRange]) -> set[int]:
    return {position for start, end in ranges for position in range(start, end)}


@given(RANGES)
def test_a_union_holds_the_same_positions_apart_and_in_order(ranges: list[ByteRange]) -> None:
    joined = union(ranges)
    assert positions(joined) == positions(ranges)
    assert n_bytes(joined) == len(positions(ranges))
    assert all(a[1] < b[0] for a, b in pairwise(joined))


@given(RANGES, st.integers(0, 10))
def test_a_union_over_gaps_adds_nothing_but_the_gaps(ranges: list[ByteRange], gap: int) -> None:
    joined = union(ranges, gap)
    added = positions(joined) - positions(ranges)
    between = {p for a, b in pairwise(union(ranges)) for p in range(a[1], b[0])}
    assert positions(ranges) <= positions(joined)
    assert added <= between
    assert all(b[0] - a[1] > gap for a, b in pairwise(joined))


@given(RANGES, RANGES)
def test_a_difference_is_what_is_wanted_and_not_held(wanted: list[ByteRange], held: list[ByteRange]) -> None:
    left = difference(wanted, held)
    assert positions(left) == positions(wanted) - positions(held)
    assert left == sorted(left)
    assert all(start < end for start, end in left)


@given(RANGES, st.lists(st.integers(0, LENGTH), max_size=6), st.integers(0, 9))
def test_gathering_gives_every_range_its_bytes_however_the_chunks_fall(
    ranges: list[ByteRange], cuts: list[int], overlap: int
) -> None:
    content = bytes(range(LENGTH))
    gathering = Gathering(ranges)
    edges = [0, *sorted(cuts), LENGTH]
    for start, end in pairwise(edges):
        begin = max(0, start - overlap)
        gathering.add(begin, content[begin:end])
    assert gathering.is_whole
    assert gathering.buffers == [content[start:end] for start, end in ranges]


def test_gathering_is_not_whole_while_bytes_are_missing() -> None:
    gathering = Gathering([(0, 4), (10, 12)])
    gathering.add(0, b"abcdefgh")
    assert not gathering.is_whole
    gathering.add(11, b"yz")
    assert not gathering.is_whole, "a range that begins with a hole is not filled behind it"
    assert gathering.buffers == [b"abcd", b""]
