"""Weight files on this machine as one `TensorStore`.

Headers of all files are read when the store is made. Each call of `read` maps the files it needs and lets go of them
when its tensors are gone, so memory holds what the caller holds and no more. Only a torch file in the old, non-zip
format cannot be mapped; it is loaded whole, once.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.checkpoint.tensors import TensorInfo, merged_infos
from headspan.checkpoint.torch_header import is_torch_zip
from headspan.checkpoint.weight_header import read_weight_header
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch

FULL_HASH_BYTES = 4 * 2**30
"""Above this the weights are not hashed whole: reading 140 GB to label a result would cost more than the result."""


def read_header(path: Path) -> Mapping[str, TensorInfo]:
    """Every tensor of one weight file, by its format."""
    try:
        if path.is_dir():
            raise CheckpointError(f"'{path.name}' is a folder where a weight file was expected")
        with path.open("rb") as file:
            return read_weight_header(file, path.stat().st_size, path.name).infos
    except OSError as problem:
        raise CheckpointError(f"'{path.name}' cannot be read: {problem.strerror or problem}") from problem


@dataclass(frozen=True)
class LocalFiles:
    """The tensors of one or several weight files."""

    files: Mapping[str, Path]
    """File name as messages show it -> where it is."""
    infos: Mapping[str, TensorInfo]
    _loaded_whole: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, paths: Sequence[Path]) -> LocalFiles:
        return cls({path.name: path for path in paths}, merged_infos(map(read_header, paths)))

    @property
    def bytes_on_disk(self) -> int:
        return sum(path.stat().st_size for path in self.files.values())

    @property
    def bytes_transferred(self) -> None:
        return None

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        by_file: dict[str, list[str]] = {}
        for name in names:
            by_file.setdefault(self.infos[name].place, []).append(name)
        tensors: dict[str, torch.Tensor] = {}
        for place, wanted in by_file.items():
            path = self.files[place]
            read = self._read_safetensors if path.suffix == ".safetensors" else self._read_torch
            tensors |= read(path, wanted)
        return tensors

    def _read_safetensors(self, path: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in names}
        except (SafetensorError, OSError) as problem:
            raise CheckpointError(f"'{path.name}' can no longer be read: {problem}") from problem

    def _read_torch(self, path: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
        state_dict = self._loaded_whole.get(path.name)
        if state_dict is None:
            mapped = is_torch_zip(path)
            state_dict = _torch_state_dict(path, mapped)
            if not mapped:
                self._loaded_whole[path.name] = state_dict
        return {name: _as_described(state_dict.get(name), self.infos[name]) for name in names}

    def content_hash(self) -> str:
        return self._content_hash

    @cached_property
    def _content_hash(self) -> str:
        if self.bytes_on_disk > FULL_HASH_BYTES:
            headers = sorted((info.place, info.name, info.dtype, info.shape) for info in self.infos.values())
            return f"sha256-of-headers:{hashlib.sha256(repr(headers).encode()).hexdigest()}"
        digests = {name: file_digest(path) for name, path in sorted(self.files.items())}
        return hash_of_files(digests)


def hash_of_files(digests: Mapping[str, str]) -> str:
    """One label for all weight files, from the SHA-256 of each by name (in order of the names)."""
    if len(digests) == 1:
        return f"sha256:{next(iter(digests.values()))}"
    return f"sha256-of-files:{hashlib.sha256(repr(dict(digests)).encode()).hexdigest()}"


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content; the Hugging Face cache already keeps it as the name of the file it links to."""
    target = path.resolve().name
    if path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", target):
        return target
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _as_described(tensor: object, info: TensorInfo) -> torch.Tensor:
    """A tensor that torch loaded, held against what the file's header said of it."""
    import torch

    if not isinstance(tensor, torch.Tensor) or str(tensor.dtype).removeprefix("torch.") != info.dtype:
        raise CheckpointError(f"'{info.place}' is damaged: tensor '{info.name}' is not what its header says")
    return tensor


def _torch_state_dict(path: Path, mapped: bool) -> dict[str, torch.Tensor]:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as problem:  # on damaged bytes torch's reader raises whatever it stumbles over
        first_line = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise CheckpointError(f"'{path.name}' cannot be loaded by torch: {first_line}") from problem
    return dict(content)
