"""What a checkpoint's tensors look like before any of them is read.

A `TensorStore` knows the name, dtype and shape of every tensor from headers alone, and reads the ones it is asked for.
Stores differ in where the bytes are (local files, memory, a remote host); nothing above them does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch

ITEM_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "complex64": 8,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
READABLE: frozenset[str] = frozenset({"float64", "float32", "float16", "bfloat16"})
"""Dtypes whose numbers are the weights themselves; any other dtype means packed or quantised weights."""


@dataclass(frozen=True)
class TensorInfo:
    """Name, dtype and shape of a stored tensor, and the file (or other place) that holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    place: str

    @property
    def n_items(self) -> int:
        return prod(self.shape)

    @property
    def n_bytes(self) -> int:
        return self.n_items * ITEM_BYTES[self.dtype]


def merged_infos(files: Iterable[Mapping[str, TensorInfo]]) -> dict[str, TensorInfo]:
    """The tensors of several files as one; a name that two files hold is refused."""
    merged: dict[str, TensorInfo] = {}
    for infos in files:
        for name, info in infos.items():
            if name in merged:
                raise CheckpointError(f"tensor '{name}' is in both '{merged[name].place}' and '{info.place}'")
            merged[name] = info
    return merged


class TensorStore(Protocol):
    """Tensors by name: headers at once, contents on demand."""

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        """Every tensor of the checkpoint, by its stored name."""

    @property
    def bytes_on_disk(self) -> int | None:
        """Size of the weight files, or None where there are none."""

    @property
    def bytes_transferred(self) -> int | None:
        """What has been read from another machine so far; None where the weights are on this one."""

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Contents of the named tensors, in their stored dtype; nothing else is kept in memory."""

    def content_hash(self) -> str:
        """A label of the weights' content, prefixed with how it was made (`sha256:...`)."""
