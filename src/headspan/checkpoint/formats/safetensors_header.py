"""The header of a safetensors file, read and checked without torch and without touching the weights.

1. Eight bytes give the header's length; it must fit the file and a limit no real header comes near.
2. The header is JSON: name -> dtype, shape, byte range. A repeated name is refused.
3. Every byte of the rest of the file belongs to exactly one tensor: no gap, no overlap, nothing left over.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from headspan.checkpoint.formats.tensors import DTYPES, TensorInfo
from headspan.errors import CheckpointError

MAX_HEADER_BYTES = 32 * 2**20
"""About 300,000 tensors; the largest published checkpoints need well under 1 MB a file."""

CODES: Mapping[str, str] = {code: name for name, _, code, _ in DTYPES}


@dataclass(frozen=True)
class SafetensorsHeader:
    """What the tensors of one file are, and where in the file each of them lies."""

    infos: Mapping[str, TensorInfo]
    byte_ranges: Mapping[str, tuple[int, int]]
    """Tensor -> first byte and the byte after its last, counted from the start of the file."""


def read_safetensors_header(file: BinaryIO, size: int, place: str) -> SafetensorsHeader:
    """Every tensor of the safetensors file `place`, which is `size` bytes long."""
    header, data_bytes = _header_json(file, size, place)
    entries = _parse(header, place)
    infos, byte_ranges, ranges = {}, {}, []
    for name, entry in entries.items():
        infos[name], (start, end) = _tensor(name, entry, place)
        byte_ranges[name] = (size - data_bytes + start, size - data_bytes + end)
        ranges.append((start, end, name))
    _check_every_byte_is_claimed(ranges, data_bytes, place)
    return SafetensorsHeader(infos, byte_ranges)


def _header_json(file: BinaryIO, size: int, place: str) -> tuple[bytes, int]:
    if size < 8:
        raise CheckpointError(f"{place} is {size} bytes long, too short for a safetensors file; download it again")
    (length,) = struct.unpack("<Q", file.read(8))
    if length > size - 8:
        raise CheckpointError(
            f"{place} claims a header of {length:,} bytes but is {size:,} bytes long; "
            "it is truncated or not a safetensors file: download it again"
        )
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{place} has a header of {length:,} bytes; headspan reads at most {MAX_HEADER_BYTES:,}")
    return file.read(length), size - 8 - length


def _parse(header: bytes, place: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            raise ValueError("a name occurs twice")
        return content

    try:
        entries = json.loads(header, object_pairs_hook=unique)
    except (ValueError, RecursionError) as problem:
        raise CheckpointError(f"{place}: its safetensors header is not valid JSON: {problem}") from problem
    if not isinstance(entries, dict):
        raise CheckpointError(f"{place}: its safetensors header is a JSON {type(entries).__name__}, not an object")
    entries.pop("__metadata__", None)
    return entries


def _tensor(name: str, entry: Any, place: str) -> tuple[TensorInfo, tuple[int, int]]:
    try:
        code, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as problem:
        raise CheckpointError(f"{place}: the header entry of tensor '{name}' is malformed") from problem
    if not isinstance(code, str) or code not in CODES:
        raise CheckpointError(f"{place}: tensor '{name}' has dtype {code!r:.40}, which headspan does not know")
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (*shape, start, end)):
        raise CheckpointError(f"{place}: tensor '{name}' has a shape or offsets that are not whole numbers >= 0")
    info = TensorInfo(name, CODES[code], shape, place)
    if end - start != info.n_bytes:
        raise CheckpointError(
            f"{place}: tensor '{name}' of shape {shape} and dtype {info.dtype} needs {info.n_bytes:,} bytes, "
            f"but its offsets {start}..{end} hold {end - start:,}"
        )
    return info, (start, end)


def _check_every_byte_is_claimed(ranges: list[tuple[int, int, str]], data_bytes: int, place: str) -> None:
    position = 0
    for start, end, name in sorted(ranges):
        if start != position:
            kind = "overlaps the tensor before it" if start < position else "leaves a gap before it"
            raise CheckpointError(f"{place}: tensor '{name}' at byte {start} {kind}; the header is corrupt")
        position = end
    if position != data_bytes:
        raise CheckpointError(
            f"{place}: its tensors end at byte {position:,} of the data, but the file holds {data_bytes:,}; "
            "it is truncated or corrupt: download it again"
        )
