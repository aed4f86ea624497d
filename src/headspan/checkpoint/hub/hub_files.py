"""Weight files on the Hub as one `TensorStore`: headers at once, byte ranges of tensors on demand.

safetensors and GGUF: a tensor is one range, known from the header. A torch zip: a tensor is a view into a storage,
which is a zip member stored as it is. Where its bytes begin stands in a short header before them, so both are asked
for at once and the tensor is cut out when the header has been read.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, cast

from headspan.checkpoint.formats import WeightHeader, read_weight_header
from headspan.checkpoint.formats.gguf_header import GGUFHeader
from headspan.checkpoint.formats.headers import ZIP_MAGIC, SafetensorsHeader, TorchHeader
from headspan.checkpoint.formats.local_files import hash_of_files
from headspan.checkpoint.formats.tensors import ITEM_BYTES, TensorInfo, merge_infos, names_by_place
from headspan.checkpoint.formats.torch_pickle import PickledTensor
from headspan.checkpoint.hub.cache import ByteRange
from headspan.checkpoint.hub.connection import Connection
from headspan.checkpoint.hub.ranged_file import BlockReader, RangedFile
from headspan.errors import CheckpointError, HubError

if TYPE_CHECKING:
    import torch

MEMBER_HEADER = struct.Struct("<4s22xHH")
"""Of the header before a zip member: magic, then at its end the lengths of the name and of the extra field."""
USUAL_EXTRA_BYTES = 256
"""torch aligns storages to 64 bytes with an extra field; a longer one costs a second request, nothing else."""


@dataclass(frozen=True, eq=False)
class HubFiles:
    """The tensors of one or several weight files of one commit."""

    files: Mapping[str, RangedFile]
    headers: Mapping[str, WeightHeader]
    infos: Mapping[str, TensorInfo]
    connection: Connection
    _roundoffs: dict[str, float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, files: Sequence[RangedFile], connection: Connection) -> HubFiles:
        headers = {file.name: _header(file) for file in files}
        infos = merge_infos(header.infos for header in headers.values())
        return cls({file.name: file for file in files}, headers, infos, connection)

    @property
    def bytes_on_disk(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def bytes_transferred(self) -> int:
        return self.connection.bytes_transferred

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        tensors: dict[str, torch.Tensor] = {}
        for place, wanted in names_by_place(self.infos, names).items():
            header = self.headers[place]
            if isinstance(header, GGUFHeader):
                tensors |= self._gguf_contents(self.files[place], header, wanted)
            elif isinstance(header, SafetensorsHeader):
                tensors |= _safetensors_contents(self.files[place], header, wanted)
            else:
                tensors |= _torch_contents(self.files[place], header, wanted)
        return tensors

    @cached_property
    def gguf(self) -> Mapping[str, GGUFHeader]:
        """The headers of GGUF files, by the files' names."""
        return {name: header for name, header in self.headers.items() if isinstance(header, GGUFHeader)}

    def _gguf_contents(self, file: RangedFile, header: GGUFHeader, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """The named tensors of a GGUF file, and how blurred they are, while their bytes are at hand."""
        import numpy as np

        from headspan.checkpoint.formats.gguf_numbers import block_roundoff, unpacked

        contents = file.read([header.byte_ranges[name] for name in names])
        tensors: dict[str, torch.Tensor] = {}
        for index, name in enumerate(names):
            raw, kind = np.frombuffer(contents[index], np.uint8), header.types[name]
            tensors[name] = unpacked(raw, header.infos[name], kind)
            self._roundoffs[name] = block_roundoff(raw, kind)
            contents[index] = bytearray()
        return tensors

    def roundoff(self, name: str) -> float:
        if self.infos[name].packing is None:
            return 0.0
        if name not in self._roundoffs:
            self.read([name])
        return self._roundoffs[name]

    def content_hash(self) -> str:
        """From the hashes that the Hub lists; the same label as that of the downloaded files, up to 4 GiB of them."""
        digests = {name: file.download.file.digest for name, file in sorted(self.files.items())}
        if all(len(digest) == 64 for digest in digests.values()):
            return hash_of_files(digests)
        return f"hub-hashes:{hashlib.sha256(repr(digests).encode()).hexdigest()}"


def _header(file: RangedFile) -> WeightHeader:
    header = read_weight_header(cast("BinaryIO", BlockReader(file)), file.size, file.name)
    if isinstance(header, TorchHeader) and not header.members:
        raise _in_parts(file, "is in the format from before torch 1.6")
    if isinstance(header, TorchHeader) and header.big_endian:
        raise _in_parts(file, "was written on a big-endian machine")
    return header


def _in_parts(file: RangedFile, reason: str) -> HubError:
    repo, commit = file.download.repo, file.download.commit
    return HubError(
        f"'{file.name}' of '{repo}' {reason} and cannot be read in parts; download all of it "
        f"(`hf download {repo} {file.name} config.json --revision {commit}`) and open it again"
    )


def _safetensors_contents(file: RangedFile, header: SafetensorsHeader, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The named tensors of a safetensors file."""
    contents = file.read([header.byte_ranges[name] for name in names])
    named = ((header.infos[name], content) for name, content in zip(names, contents, strict=True))
    return {info.name: _flat(content, info.dtype).reshape(info.shape) for info, content in named}


def _torch_contents(file: RangedFile, header: TorchHeader, names: Sequence[str]) -> dict[str, torch.Tensor]:
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


def _header_range(file: RangedFile, member: zipfile.ZipInfo) -> ByteRange:
    if not 0 <= member.header_offset <= file.size - MEMBER_HEADER.size:
        raise CheckpointError(f"{file.name} is damaged: its directory points outside the file; download it again")
    return member.header_offset, member.header_offset + MEMBER_HEADER.size


def _likely_range(file: RangedFile, member: zipfile.ZipInfo, tensor: PickledTensor) -> ByteRange:
    first, end = _storage_bytes(tensor)
    name_end = member.header_offset + MEMBER_HEADER.size + len(member.orig_filename.encode())
    start = min(name_end + first, file.size)
    return start, min(name_end + end + USUAL_EXTRA_BYTES, file.size) if first < end else start


def _data_start(header: bytearray, member: zipfile.ZipInfo, file: RangedFile) -> int:
    """Where the member's own bytes begin, from the header before them."""
    magic, name_bytes, extra_bytes = MEMBER_HEADER.unpack(header)
    start = int(member.header_offset + MEMBER_HEADER.size + name_bytes + extra_bytes)
    if magic != ZIP_MAGIC or start + member.file_size > file.size:
        raise CheckpointError(f"{file.name} is damaged: '{member.filename}' is not where its directory says")
    return start
