"""Tensors in the layout of another program (llama.cpp, TransformerLens), in that of their family when they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

from headspan.checkpoint.config import Config
from headspan.checkpoint.families.gguf import Origin, gguf_model
from headspan.checkpoint.formats.gguf_header import GGUFHeader
from headspan.checkpoint.formats.gguf_vocabulary import stored_pieces
from headspan.checkpoint.formats.tensors import TensorInfo, TensorStore
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch


class GGUFFiles(TensorStore, Protocol):
    """A store that may hold GGUF files."""

    @property
    def gguf(self) -> Mapping[str, GGUFHeader]:
        """Their headers, by the files' names; empty where there are none."""


@dataclass(frozen=True)
class ConvertedTensors:
    """A family's tensors, made of those that a store holds."""

    base: TensorStore
    origins: Mapping[str, Origin]

    @cached_property
    def infos(self) -> Mapping[str, TensorInfo]:
        return {name: self._info(name, origin) for name, origin in self.origins.items()}

    def _info(self, name: str, origin: Origin) -> TensorInfo:
        parts = [self.base.infos[part] for part in origin.parts]
        coarsest = min(parts, key=lambda part: float("inf") if part.packing is None else part.packing.bits)
        return replace(coarsest, name=name, shape=origin.shape)

    @property
    def bytes_on_disk(self) -> int | None:
        return self.base.bytes_on_disk

    @property
    def bytes_transferred(self) -> int | None:
        return self.base.bytes_transferred

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        uses = Counter(part for name in names for part in self.origins[name].parts)
        parts = self.base.read(list(uses))
        tensors: dict[str, torch.Tensor] = {}
        for name in names:
            origin = self.origins[name]
            tensors[name] = origin.undo.apply(*(parts[part] for part in origin.parts))
            uses.subtract(origin.parts)
            for part in origin.parts:
                if not uses[part]:
                    parts.pop(part, None)
        return tensors

    def roundoff(self, name: str) -> float:
        return max(self.base.roundoff(part) for part in self.origins[name].parts)

    def content_hash(self) -> str:
        return self.base.content_hash()


@dataclass(frozen=True)
class GGUFTensors(ConvertedTensors):
    """A family's tensors, made of those that GGUF files hold."""

    base: GGUFFiles

    @property
    def first_file(self) -> str:
        """The file whose metadata describe the model and its tokenizer, without the folders before it."""
        return PurePosixPath(next(iter(self.base.gguf))).name

    def pieces(self, folder: Path) -> tuple[list[str], set[int]]:
        """What the tokenizer's tokens are, from the file in `folder`, and the ids of those that are no text."""
        return stored_pieces(folder / self.first_file, next(iter(self.base.gguf.values())).metadata)


def converted(files: GGUFFiles) -> tuple[GGUFTensors, Config]:
    """The model that GGUF files hold: its tensors, and the config that their metadata amount to."""
    headers = list(files.gguf.items())
    place, first = headers[0]
    _check_parts(headers)
    tables = {name: table for _, header in headers for name, table in header.tables.items()}
    config, origins = gguf_model(first.metadata, tables, files.infos, place)
    return GGUFTensors(files, origins), config


def _check_parts(headers: Sequence[tuple[str, GGUFHeader]]) -> None:
    for index, (name, header) in enumerate(headers):
        count, number = header.metadata.get("split.count", 1), header.metadata.get("split.no", 0)
        if count not in (0, len(headers)) or (count and number != index):
            raise CheckpointError(
                f"'{name}' says that it is part {number + 1 if isinstance(number, int) else number!r:.20} of "
                f"{count!r:.20}, but {len(headers)} files are there; keep all parts in one folder, named as they were"
            )
