"""The header of a GGUF file, read and checked without torch and without touching the weights.

1. Magic, version, how many tensors and how many facts ("metadata") follow.
2. Each fact: a name, a type, a value. Numbers, short texts and short lists are kept. Of long lists (the tokens and
   merges of a tokenizer) only the length is: they are walked over, which takes no memory.
3. Each tensor: name, axes (the fastest first), type, where it begins. All lie in the file, aligned, none on another.

Every count and length is held against what is left of the file before anything is done with it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO

from headspan.checkpoint.formats.gguf_types import TYPES, BlockType
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.errors import CheckpointError, UnsupportedModel

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_HEADER_BYTES = 256 * 2**20
"""Ten times the longest published: half a million tokens and merges."""
MAX_TENSORS = 300_000
MAX_FACTS = 65_536
MAX_AXES = 4
MAX_NAME_BYTES = 65_535
MAX_KEPT_BYTES = 4096
MAX_KEPT_IN_ALL = 8 * 2**20
CHUNK_BYTES = 2**20
DEFAULT_ALIGNMENT = 32
TEXT, LIST = 8, 9
NUMBERS: Mapping[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type of a value -> its struct code."""
LENGTH = struct.Struct("<Q")
TABLES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Short tensors that are settings of the model rather than weights; the header holds their numbers."""
MAX_TABLE = 4096


@dataclass(frozen=True)
class Skipped:
    """A list or text that was walked over."""

    length: int
    start: int
    """The byte of the file at which its content begins."""


@dataclass(frozen=True)
class GGUFHeader:
    """What the tensors of one file are, where each lies, and the facts that stand before them."""

    infos: Mapping[str, TensorInfo]
    byte_ranges: Mapping[str, tuple[int, int]]
    """Tensor -> first byte and the byte after its last, counted from the start of the file."""
    types: Mapping[str, BlockType]
    metadata: Mapping[str, Any]
    tables: Mapping[str, tuple[float, ...]]
    facts_end: int
    """The byte after the last fact: what lies before it is all that a tokenizer is made of."""


class _Cursor:
    """Reads a file forward in large chunks."""

    def __init__(self, file: BinaryIO, size: int, place: str) -> None:
        self.file, self.size, self.place = file, size, place
        self.chunk, self.start, self.at = b"", 0, 0

    @property
    def position(self) -> int:
        return self.start + self.at

    def damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.place} is truncated or not a GGUF file: {what}; download it again")

    def check(self, n_bytes: int, what: str) -> None:
        """Refuse a length that the file, or any header, cannot have."""
        if n_bytes > self.size - self.position:
            raise self.damaged(f"{what} at byte {self.position:,} claims {n_bytes:,} bytes of {self.size:,}")
        if self.position + n_bytes > MAX_HEADER_BYTES:
            raise CheckpointError(f"{self.place} has a header of over {MAX_HEADER_BYTES:,} bytes; no real one has")

    def load(self, n_bytes: int) -> None:
        """Have the next `n_bytes` in the chunk."""
        if self.at + n_bytes > len(self.chunk):
            self.start, self.at = self.position, 0
            self.file.seek(self.start)
            self.chunk = self.file.read(min(max(n_bytes, CHUNK_BYTES), self.size - self.start))
            if len(self.chunk) < n_bytes:
                raise self.damaged(f"it ends at byte {self.start + len(self.chunk):,}")

    def take(self, n_bytes: int, what: str) -> bytes:
        self.check(n_bytes, what)
        self.load(n_bytes)
        self.at += n_bytes
        return self.chunk[self.at - n_bytes : self.at]

    def skip(self, n_bytes: int, what: str) -> None:
        self.check(n_bytes, what)
        self.at += n_bytes

    def number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def text(self, what: str, most: int) -> str:
        length = self.number("Q", what)
        self.check(length, what)
        if length > most:
            raise CheckpointError(f"{self.place}: {what} is {length:,} bytes long; headspan reads at most {most:,}")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError as problem:
            raise self.damaged(f"{what} is not text") from problem

    def skip_texts(self, count: int, what: str) -> None:
        """Walk over texts, each behind its length; there may be half a million."""
        self.check(8 * count, what)
        at, chunk, read = self.at, self.chunk, LENGTH.unpack_from
        for _ in range(count):
            if at + 8 > len(chunk):
                self.at = at
                self.check(8, what)
                self.load(8)
                at, chunk = self.at, self.chunk
            at += 8 + read(chunk, at)[0]
        self.at = at
        self.check(0, what)


def read_gguf_header(file: BinaryIO, size: int, place: str) -> GGUFHeader:
    """Every tensor and fact of the GGUF file `place`, which is `size` bytes long."""
    cursor = _Cursor(file, size, place)
    n_tensors, n_facts = _opening(cursor)
    metadata = _facts(cursor, n_facts)
    facts_end = cursor.position
    alignment = _alignment(metadata, place)
    entries = [_entry(cursor) for _ in range(n_tensors)]
    start = -(-cursor.position // alignment) * alignment
    infos, types, byte_ranges = {}, {}, {}
    for info, kind, offset in entries:
        if info.name in infos:
            raise CheckpointError(f"{place}: tensor '{info.name}' is there twice; the header is corrupt")
        if offset % alignment:
            raise CheckpointError(f"{place}: tensor '{info.name}' begins at {offset:,}, not a multiple of {alignment}")
        infos[info.name], types[info.name] = info, kind
        begin = start + offset
        byte_ranges[info.name] = (begin, begin + info.n_items // kind.numbers * kind.n_bytes)
    _check_ranges(byte_ranges, size, place)
    tables = {name: _table(file, infos[name], byte_ranges[name]) for name in TABLES if name in infos}
    return GGUFHeader(infos, byte_ranges, types, metadata, tables, facts_end)


def without_tensors(facts: bytes | bytearray) -> bytes:
    """A GGUF file that holds no tensor, from the first `facts_end` bytes of another."""
    return bytes(facts[:8]) + LENGTH.pack(0) + bytes(facts[16:])


def texts_at(file: BinaryIO, size: int, place: str, where: Skipped) -> list[str]:
    """A list of texts that the header walked over."""
    cursor = _Cursor(file, size, place)
    cursor.start = where.start
    return [cursor.text("a token", MAX_NAME_BYTES) for _ in range(where.length)]


def whole_numbers_at(file: BinaryIO, size: int, place: str, where: Skipped) -> tuple[int, ...]:
    """A list of 32-bit whole numbers that the header walked over."""
    cursor = _Cursor(file, size, place)
    cursor.start = where.start
    return struct.unpack(f"<{where.length}i", cursor.take(4 * where.length, "the types of tokens"))


def _opening(cursor: _Cursor) -> tuple[int, int]:
    if cursor.size < 24 or cursor.take(4, "its magic") != MAGIC:
        raise CheckpointError(f"{cursor.place} is not a GGUF file: it does not begin with 'GGUF'; download it again")
    version = cursor.number("I", "its version")
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise UnsupportedModel(f"{cursor.place} is a big-endian GGUF file; headspan reads little-endian ones")
        raise UnsupportedModel(f"{cursor.place} is GGUF version {version}; headspan reads versions 2 and 3")
    n_tensors, n_facts = cursor.number("Q", "its number of tensors"), cursor.number("Q", "its number of facts")
    for count, most, what in ((n_tensors, MAX_TENSORS, "tensors"), (n_facts, MAX_FACTS, "metadata entries")):
        if count > most:
            raise CheckpointError(f"{cursor.place} claims {count:,} {what}; headspan reads at most {most:,}")
    return n_tensors, n_facts


def _facts(cursor: _Cursor, count: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    kept = 0
    for _ in range(count):
        name = cursor.text("the name of a metadata entry", MAX_NAME_BYTES)
        if name in facts:
            raise CheckpointError(f"{cursor.place}: the metadata entry '{name[:80]}' is there twice")
        begin = cursor.position
        facts[name] = _value(cursor, cursor.number("I", f"the type of '{name[:80]}'"), f"'{name[:80]}'")
        kept += len(name) + (0 if isinstance(facts[name], Skipped) else cursor.position - begin)
        if kept > MAX_KEPT_IN_ALL:
            raise CheckpointError(f"{cursor.place} has over {MAX_KEPT_IN_ALL:,} bytes of metadata; no real one has")
    return facts


def _value(cursor: _Cursor, kind: int, what: str) -> Any:
    if kind in NUMBERS:
        return cursor.number(NUMBERS[kind], what)
    if kind == TEXT:
        return _text(cursor, what)
    if kind != LIST:
        raise CheckpointError(f"{cursor.place}: {what} has type {kind}, which GGUF does not have; it is damaged")
    kind, count = cursor.number("I", what), cursor.number("Q", what)
    start = cursor.position
    if kind == TEXT:
        cursor.skip_texts(count, what)
        return Skipped(count, start)
    if kind not in NUMBERS:
        nested = "a list of lists" if kind == LIST else f"a list of type {kind}"
        raise CheckpointError(f"{cursor.place}: {what} is {nested}, which no model needs; it is damaged")
    n_bytes = count * struct.calcsize("<" + NUMBERS[kind])
    cursor.check(n_bytes, what)
    if n_bytes > MAX_KEPT_BYTES:
        cursor.skip(n_bytes, what)
        return Skipped(count, start)
    return list(struct.unpack(f"<{count}{NUMBERS[kind]}", cursor.take(n_bytes, what)))


def _text(cursor: _Cursor, what: str) -> str | Skipped:
    length = cursor.number("Q", what)
    if length > MAX_KEPT_BYTES:
        start = cursor.position
        cursor.skip(length, what)
        return Skipped(length, start)
    return cursor.take(length, what).decode(errors="replace")


def _alignment(metadata: Mapping[str, Any], place: str) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 8 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise CheckpointError(
            f"{place}: its alignment is {alignment!r:.40}, not a power of two from 8 on; it is damaged"
        )
    return alignment


def _entry(cursor: _Cursor) -> tuple[TensorInfo, BlockType, int]:
    name = cursor.text("the name of a tensor", MAX_NAME_BYTES)
    n_axes = cursor.number("I", f"tensor '{name[:80]}'")
    if not 1 <= n_axes <= MAX_AXES:
        raise CheckpointError(f"{cursor.place}: tensor '{name[:80]}' has {n_axes:,} axes, not 1 to {MAX_AXES}")
    axes = struct.unpack(f"<{n_axes}Q", cursor.take(8 * n_axes, f"tensor '{name[:80]}'"))
    number, offset = cursor.number("I", f"tensor '{name[:80]}'"), cursor.number("Q", f"tensor '{name[:80]}'")
    kind = TYPES.get(number)
    if kind is None:
        raise UnsupportedModel(
            f"{cursor.place}: tensor '{name[:80]}' has the GGUF type {number}, which headspan does not know"
        )
    if axes[0] % kind.numbers:
        raise CheckpointError(
            f"{cursor.place}: tensor '{name[:80]}' has rows of {axes[0]:,}, which blocks of {kind.numbers} "
            f"({kind.name}) do not fill; the header is corrupt"
        )
    if prod(axes) // kind.numbers * kind.n_bytes > cursor.size:
        raise cursor.damaged(f"tensor '{name[:80]}' of shape {axes[::-1]} is larger than the file")
    return TensorInfo(name, kind.dtype, axes[::-1], cursor.place, kind.packing), kind, offset


def _check_ranges(ranges: Mapping[str, tuple[int, int]], size: int, place: str) -> None:
    position = 0
    for name, (start, end) in sorted(ranges.items(), key=lambda item: item[1]):
        if start < position:
            raise CheckpointError(f"{place}: tensor '{name}' at byte {start:,} overlaps another; the header is corrupt")
        if end > size:
            raise CheckpointError(
                f"{place}: tensor '{name}' ends at byte {end:,}, but the file is {size:,} bytes long; "
                "it is truncated: download it again"
            )
        position = end


def _table(file: BinaryIO, info: TensorInfo, place: tuple[int, int]) -> tuple[float, ...]:
    if info.dtype != "float32" or info.packing is not None or info.n_items > MAX_TABLE:
        raise CheckpointError(f"{info.place}: '{info.name}' should be a short table of float32 numbers; it is damaged")
    file.seek(place[0])
    return struct.unpack(f"<{info.n_items}f", file.read(place[1] - place[0]))
