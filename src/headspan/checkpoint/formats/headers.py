"""Names, dtypes and shapes in a `pytorch_model.bin`, without torch.

A file written since torch 1.6 is a zip archive: `<root>/data.pkl` describes the tensors, `<root>/data/<key>` holds each
storage, uncompressed. An older one is a row of pickles: magic number, protocol, system facts, the state dict, then the
storages. Both describe the state dict with the same pickle, read by `torch_pickle`.

The header of a safetensors file, read and checked without torch and without touching the weights.

1. Eight bytes give the header's length; it must fit the file and a limit no real header comes near.
2. The header is JSON: name -> dtype, shape, byte range. A repeated name is refused.
3. Every byte of the rest of the file belongs to exactly one tensor: no gap, no overlap, nothing left over.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from headspan.checkpoint.formats.tensors import DTYPES, ITEM_BYTES, TensorInfo
from headspan.checkpoint.formats.torch_pickle import (
    MAX_DIMS,
    MAX_PICKLE_BYTES,
    PickledTensor,
    Storage,
    pickled_value,
)
from headspan.errors import CheckpointError
from headspan.input_files import json_value

ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001
MAX_DIRECTORY_BYTES = 16 * 2**20
"""About 150,000 storages. `zipfile` reads a directory in one go, so a false length must not become an allocation."""
ENCRYPTED = 0x1


@dataclass(frozen=True)
class TorchHeader:
    """What the tensors of one file are, and which zip members hold their storages."""

    infos: Mapping[str, TensorInfo]
    tensors: Mapping[str, PickledTensor]
    members: Mapping[str, zipfile.ZipInfo]
    """Key of a storage -> the member that holds it; empty for a file in the old format."""
    big_endian: bool = False
    """Whether the file says that its numbers were written on a machine with the other byte order."""


def is_torch_zip(path: Path) -> bool:
    """Whether `path` is in the zip format, which torch can map instead of loading."""
    with path.open("rb") as file:
        return file.read(4) == ZIP_MAGIC


def read_torch_header(file: BinaryIO, size: int, place: str) -> TorchHeader:
    """Every tensor of the state dict that the torch file `place`, `size` bytes long, holds."""
    zipped = file.read(4) == ZIP_MAGIC
    file.seek(0)
    state_dict, members, big_endian = (
        _zip_state_dict(file, place) if zipped else (_legacy_state_dict(file, size, place), {}, False)
    )
    if not isinstance(state_dict, dict):
        raise CheckpointError(f"{place} holds a {type(state_dict).__name__}, not a state dict")
    tensors = {n: t for n, t in state_dict.items() if isinstance(n, str) and isinstance(t, PickledTensor)}
    if not tensors:
        keys = ", ".join(repr(key) for key in list(state_dict)[:5]) or "nothing"
        raise CheckpointError(
            f"{place} has no tensor at its top level (it holds {keys}); save the model's state dict by itself"
        )
    infos = {n: TensorInfo(n, tensor.storage.dtype, tensor.shape, place) for n, tensor in tensors.items()}
    return TorchHeader(infos, tensors, members, big_endian)


class _BoundedReads(io.RawIOBase):
    """A file that refuses to hand out more bytes at once than any directory of a state dict has."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.most = file, MAX_DIRECTORY_BYTES

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def read(self, size: int = -1) -> bytes:
        if size > self.most:
            raise zipfile.BadZipFile(f"its directory claims {size:,} bytes")
        # Without a size `zipfile` reads to the end, from at most 64 kB before it.
        return self.file.read(size if size >= 0 else self.most)


def _zip_state_dict(file: BinaryIO, place: str) -> tuple[Any, dict[str, zipfile.ZipInfo], bool]:
    try:
        bounded = _BoundedReads(file)
        with zipfile.ZipFile(cast("IO[bytes]", bounded)) as archive:
            bounded.most = MAX_PICKLE_BYTES
            members = {member.filename: member for member in archive.infolist()}
            pickle_name = next((name for name in members if name.rpartition("/")[2] == "data.pkl"), None)
            if pickle_name is None:
                raise CheckpointError(f"{place} is a zip archive but not a torch checkpoint: it has no data.pkl")
            value = pickled_value(io.BytesIO(_stored(archive, members[pickle_name])), place)
            root = pickle_name.removesuffix("data.pkl")
            order = members.get(f"{root}byteorder")
            big_endian = order is not None and _stored(archive, order) == b"big"
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as problem:
        raise CheckpointError(f"{place} is damaged or cut short ({problem}); download it again") from problem
    return value, _storage_members(value, root, members, place), big_endian


def _stored(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The content of a small member, which torch never compresses; so nothing is unpacked and nothing swells."""
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise zipfile.BadZipFile(f"'{member.filename[:60]}' is compressed")
    if member.file_size > MAX_PICKLE_BYTES:
        raise zipfile.BadZipFile(f"'{member.filename[:60]}' is larger than {MAX_PICKLE_BYTES:,} bytes")
    return archive.read(member)


def _storage_members(
    value: Any, root: str, members: dict[str, zipfile.ZipInfo], place: str
) -> dict[str, zipfile.ZipInfo]:
    """Storage key -> zip member, each checked to hold what the pickle says it holds."""
    found: dict[str, zipfile.ZipInfo] = {}
    for storage in _storages(value):
        member = members.get(f"{root}data/{storage.key}")
        needed = storage.n_items * ITEM_BYTES[storage.dtype]
        plain = member is not None and member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & ENCRYPTED
        if member is None or not plain or member.file_size < needed:
            there = "none" if member is None else f"{member.file_size:,} bytes"
            raise CheckpointError(
                f"{place}: storage '{storage.key}' should hold {needed:,} uncompressed bytes; found {there}"
            )
        found[storage.key] = member
    return found


def _storages(value: Any) -> set[Storage]:
    tensors = value.values() if isinstance(value, dict) else ()
    return {tensor.storage for tensor in tensors if isinstance(tensor, PickledTensor)}


def _legacy_state_dict(file: BinaryIO, size: int, place: str) -> Any:
    magic, protocol = pickled_value(file, place), pickled_value(file, place)
    if magic != LEGACY_MAGIC or protocol != LEGACY_PROTOCOL:
        raise CheckpointError(f"{place} is not a checkpoint written by torch.save")
    pickled_value(file, place)
    value = pickled_value(file, place)
    needed = sum(storage.n_items * ITEM_BYTES[storage.dtype] for storage in _storages(value))
    if needed > size:
        raise CheckpointError(f"{place} should hold {needed:,} bytes of weights but is {size:,} bytes long")
    return value


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
    entries = json_value(header, f"{place}: its safetensors header", CheckpointError, unique=True)
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
    if len(shape) > MAX_DIMS:
        raise CheckpointError(f"{place}: tensor '{name}' has {len(shape):,} dims; no real one has more than {MAX_DIMS}")
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
