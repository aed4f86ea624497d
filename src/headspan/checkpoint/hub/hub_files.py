"""Weight files on the Hub as one `TensorStore`: headers at once, byte ranges of tensors on demand."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headspan.checkpoint.hub.block_reader import opened
from headspan.checkpoint.hub.connection import Traffic
from headspan.checkpoint.hub.ranged_file import RangedFile
from headspan.checkpoint.hub.remote_tensors import safetensors_contents, torch_contents
from headspan.checkpoint.local_files import hash_of_files
from headspan.checkpoint.safetensors_header import SafetensorsHeader
from headspan.checkpoint.tensors import TensorInfo, merged_infos
from headspan.checkpoint.torch_header import TorchHeader
from headspan.checkpoint.weight_header import WeightHeader, read_weight_header
from headspan.errors import HubError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class HubFiles:
    """The tensors of one or several weight files of one commit."""

    files: Mapping[str, RangedFile]
    headers: Mapping[str, WeightHeader]
    infos: Mapping[str, TensorInfo]
    traffic: Traffic

    @classmethod
    def of(cls, files: Sequence[RangedFile], traffic: Traffic) -> HubFiles:
        headers = {file.name: _header(file) for file in files}
        infos = merged_infos(header.infos for header in headers.values())
        return cls({file.name: file for file in files}, headers, infos, traffic)

    @property
    def bytes_on_disk(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def bytes_transferred(self) -> int:
        return self.traffic.n_bytes

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        by_file: dict[str, list[str]] = {}
        for name in names:
            by_file.setdefault(self.infos[name].place, []).append(name)
        tensors: dict[str, torch.Tensor] = {}
        for place, wanted in by_file.items():
            header = self.headers[place]
            if isinstance(header, SafetensorsHeader):
                tensors.update(safetensors_contents(self.files[place], header, wanted))
            else:
                tensors.update(torch_contents(self.files[place], header, wanted))
        return tensors

    def content_hash(self) -> str:
        """From the hashes that the Hub lists; the same label as that of the downloaded files, up to 4 GiB of them."""
        digests = {name: file.download.file.digest for name, file in sorted(self.files.items())}
        if all(len(digest) == 64 for digest in digests.values()):
            return hash_of_files(digests)
        return f"hub-hashes:{hashlib.sha256(repr(digests).encode()).hexdigest()}"


def _header(file: RangedFile) -> WeightHeader:
    header = read_weight_header(opened(file), file.size, file.name)
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
