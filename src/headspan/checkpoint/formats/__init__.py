"""The header of a weight file of any format, from whatever can be read and sought in: a local file or a remote one."""

from __future__ import annotations

from pathlib import PurePath
from typing import BinaryIO

from headspan.checkpoint.formats.gguf_header import MAGIC, GGUFHeader, read_gguf_header
from headspan.checkpoint.formats.headers import (
    SafetensorsHeader,
    TorchHeader,
    read_safetensors_header,
    read_torch_header,
)
from headspan.errors import CheckpointError

TORCH_SUFFIXES = frozenset({".bin", ".pt", ".pth"})

WeightHeader = SafetensorsHeader | TorchHeader | GGUFHeader


def read_weight_header(file: BinaryIO, size: int, place: str) -> WeightHeader:
    """Every tensor of the weight file `place`, `size` bytes long, by its format."""
    suffix = PurePath(place).suffix
    magic = file.read(4)
    file.seek(0)
    if suffix == ".gguf" or magic == MAGIC:
        return read_gguf_header(file, size, place)
    if suffix == ".safetensors":
        return read_safetensors_header(file, size, place)
    if suffix in TORCH_SUFFIXES:
        return read_torch_header(file, size, place)
    raise CheckpointError(
        f"'{place}' is not a weight file headspan knows; it reads .safetensors, .gguf and torch .bin, .pt, .pth"
    )
