"""Tensors made from byte ranges of a remote file.

safetensors: a tensor is one range, known from the header. A torch zip: a tensor is a view into a storage, which is a
zip member stored as it is. Where its bytes begin stands in a short header before them, so both are asked for at
once and the tensor is cut out when the header has been read.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headspan.checkpoint.hub.ranged_file import RangedFile
from headspan.checkpoint.hub.ranges import ByteRange
from headspan.checkpoint.safetensors_header import SafetensorsHeader
from headspan.checkpoint.tensors import ITEM_BYTES
from headspan.checkpoint.torch_header import ZIP_MAGIC, TorchHeader
from headspan.checkpoint.torch_pickle import PickledTensor
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch

MEMBER_HEADER = struct.Struct("<4s22xHH")
"""Of the header before a zip member: magic, then at its end the lengths of the name and of the extra field."""
USUAL_EXTRA_BYTES = 256
"""torch aligns storages to 64 bytes with an extra field; a longer one costs a second request, nothing else."""


def safetensors_contents(
    file: RangedFile, header: SafetensorsHeader, names: Sequence[str]
) -> Mapping[str, torch.Tensor]:
    """The named tensors of a safetensors file."""
    contents = file.read([header.byte_ranges[name] for name in names])
    infos = (header.infos[name] for name in names)
    return {
        info.name: _flat(content, info.dtype).reshape(info.shape) for info, content in zip(infos, contents, strict=True)
    }


def torch_contents(file: RangedFile, header: TorchHeader, names: Sequence[str]) -> Mapping[str, torch.Tensor]:
    """The named tensors of a torch zip, with the strides they were saved with."""
    tensors = [header.tensors[name] for name in names]
    members = [header.members[tensor.storage.key] for tensor in tensors]
    headers = [_header_range(file, member) for member in members]
    likely = [_likely_range(file, member, tensor) for member, tensor in zip(members, tensors, strict=True)]
    buffers = file.read([*headers, *likely])
    contents: dict[str, torch.Tensor] = {}
    for index, (name, tensor, member) in enumerate(zip(names, tensors, members, strict=True)):
        begin = _data_start(buffers[index], member, file)
        first, end = (begin + at for at in _storage_bytes(tensor))
        held = buffers[len(names) + index]
        offset = first - likely[index][0]
        if offset >= 0 and offset + end - first <= len(held):
            content = held[offset : offset + end - first]
        else:
            (content,) = file.read([(first, end)])
        buffers[len(names) + index] = bytearray()
        contents[name] = _flat(content, tensor.storage.dtype).as_strided(tensor.shape, tensor.strides)
    return contents


def _flat(content: bytearray, dtype: str) -> torch.Tensor:
    import torch

    kind = getattr(torch, dtype)
    return torch.frombuffer(content, dtype=kind) if content else torch.empty(0, dtype=kind)


def _storage_bytes(tensor: PickledTensor) -> ByteRange:
    """The bytes of its storage that a tensor touches."""
    item = ITEM_BYTES[tensor.storage.dtype]
    return tensor.offset * item, tensor.last_item * item


def _name_end(member: zipfile.ZipInfo) -> int:
    return member.header_offset + MEMBER_HEADER.size + len(member.orig_filename.encode())


def _header_range(file: RangedFile, member: zipfile.ZipInfo) -> ByteRange:
    if not 0 <= member.header_offset <= file.size - MEMBER_HEADER.size:
        raise CheckpointError(f"{file.name} is damaged: its directory points outside the file; download it again")
    return member.header_offset, member.header_offset + MEMBER_HEADER.size


def _likely_range(file: RangedFile, member: zipfile.ZipInfo, tensor: PickledTensor) -> ByteRange:
    first, end = _storage_bytes(tensor)
    start = min(_name_end(member) + first, file.size)
    return start, min(_name_end(member) + end + USUAL_EXTRA_BYTES, file.size) if first < end else start


def _data_start(header: bytearray, member: zipfile.ZipInfo, file: RangedFile) -> int:
    """Where the member's own bytes begin, from the header before them."""
    magic, name_bytes, extra_bytes = MEMBER_HEADER.unpack(header)
    start = int(member.header_offset + MEMBER_HEADER.size + name_bytes + extra_bytes)
    if magic != ZIP_MAGIC or start + member.file_size > file.size:
        raise CheckpointError(f"{file.name} is damaged: '{member.filename}' is not where its directory says")
    return start
