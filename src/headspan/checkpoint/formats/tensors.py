"""What a checkpoint's tensors look like before any of them is read.

A `TensorStore` knows the name, dtype and shape of every tensor from headers alone, and reads the ones it is asked for.
Stores differ in where the bytes are (local files, memory, a remote host); nothing above them does.

Weights whose stored numbers are not the weights are unpacked (`packed`); those of other schemes are refused by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Protocol

from headspan.checkpoint.config import Config
from headspan.errors import CheckpointError, UnsupportedModel

if TYPE_CHECKING:
    import torch


DTYPES = (
    ("float64", 8, "F64", "DoubleStorage"),
    ("float32", 4, "F32", "FloatStorage"),
    ("float16", 2, "F16", "HalfStorage"),
    ("bfloat16", 2, "BF16", "BFloat16Storage"),
    ("float8_e4m3fn", 1, "F8_E4M3", None),
    ("float8_e5m2", 1, "F8_E5M2", None),
    ("float8_e8m0fnu", 1, "F8_E8M0", None),
    ("complex64", 8, "C64", None),
    ("int64", 8, "I64", "LongStorage"),
    ("int32", 4, "I32", "IntStorage"),
    ("int16", 2, "I16", "ShortStorage"),
    ("int8", 1, "I8", "CharStorage"),
    ("uint64", 8, "U64", None),
    ("uint32", 4, "U32", None),
    ("uint16", 2, "U16", None),
    ("uint8", 1, "U8", "ByteStorage"),
    ("bool", 1, "BOOL", "BoolStorage"),
)
"""Name, bytes of an item, what safetensors calls it, and torch's class of such storage where headspan reads one."""
ITEM_BYTES: Mapping[str, int] = {name: n_bytes for name, n_bytes, _, _ in DTYPES}
READABLE: frozenset[str] = frozenset({"float64", "float32", "float16", "bfloat16"})
"""Dtypes whose numbers are the weights themselves; any other dtype means packed or quantized weights."""
CODES: frozenset[str] = frozenset({"uint8", "int8", "int32", "float8_e4m3fn", "float8_e5m2"})
"""Dtypes of codes, which stand for weights together with scales."""


@dataclass(frozen=True)
class Packing:
    """How numbers are stored that share scales or code books: the scheme, bits of a number, numbers of a group."""

    scheme: str
    """As its format calls it: Q4_1, GPTQ, nf4, fp8 e4m3."""
    bits: float
    """Bits of one number, without the scales."""
    group: str | None = None
    """Which numbers share a scale, such as "32" or "128 x 128"; None where all of a tensor do."""

    def __str__(self) -> str:
        return f"{self.scheme} ({self.bits:g} bits" + ("" if self.group is None else f", groups of {self.group}") + ")"


@dataclass(frozen=True)
class TensorInfo:
    """Name, dtype and shape of a tensor as it is read, the file (or other place) that holds it, its packing."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    place: str
    packing: Packing | None = None

    @property
    def stored_as(self) -> str:
        """The packing in words, or the dtype of plain numbers."""
        return self.dtype if self.packing is None else str(self.packing)

    @property
    def n_items(self) -> int:
        return prod(self.shape)

    @property
    def n_bytes(self) -> int:
        return self.n_items * ITEM_BYTES[self.dtype]


def names_by_place(infos: Mapping[str, TensorInfo], names: Sequence[str]) -> dict[str, list[str]]:
    """The names sorted by the file that holds them."""
    places: dict[str, list[str]] = {}
    for name in names:
        places.setdefault(infos[name].place, []).append(name)
    return places


def merge_infos(files: Iterable[Mapping[str, TensorInfo]]) -> dict[str, TensorInfo]:
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
        """Contents of the named tensors, in the dtype of their info; nothing else is kept in memory."""

    def roundoff(self, name: str) -> float:
        """Error that packing left in an entry of a tensor, over the rms of its entries; 0 for plain numbers."""

    def content_hash(self) -> str:
        """A label of the weights' content, prefixed with how it was made (`sha256:...`)."""


@dataclass(frozen=True)
class InMemory:
    """A state dict; reading hands out its own tensors, detached, without a copy."""

    tensors: Mapping[str, torch.Tensor]
    bytes_on_disk: None = None
    bytes_transferred: None = None

    @classmethod
    def of(cls, state_dict: Mapping[str, torch.Tensor]) -> InMemory:
        import torch

        for name, tensor in state_dict.items():
            if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
                raise CheckpointError(f"a state dict maps names to tensors; found {name!r}: {type(tensor).__name__}")
            if tensor.is_meta:
                raise CheckpointError(f"tensor '{name}' has no content (meta device); load the weights first")
        known = {n: t.detach() for n, t in state_dict.items() if str(t.dtype).removeprefix("torch.") in ITEM_BYTES}
        return cls(known)

    @cached_property
    def infos(self) -> Mapping[str, TensorInfo]:
        return {
            name: TensorInfo(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), "memory")
            for name, tensor in self.tensors.items()
        }

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        return {name: self.tensors[name] for name in names}

    def roundoff(self, name: str) -> float:
        return 0.0

    def content_hash(self) -> str:
        """Hash of names, shapes and bytes now; the tensors may change between two calls, so it is not kept."""
        import torch

        digest = hashlib.sha256()
        for name, info in sorted(self.infos.items()):
            digest.update(repr((name, info.dtype, info.shape)).encode())
            flat = self.tensors[name].cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        return f"sha256-of-state-dict:{digest.hexdigest()}"


PACKED_SUFFIXES: Mapping[str, str] = {
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".SCB": "bitsandbytes 8-bit",
    ".weight.absmax": "bitsandbytes 4-bit",
    ".weight_packed": "compressed-tensors",
    ".weight_scale_inv": "fp8",
}
METHOD_NAMES: Mapping[str, str] = {"gptq": "GPTQ", "awq": "AWQ", "hqq": "HQQ"}
REMEDY = "open the original checkpoint, or load this one with transformers, call model.dequantize() and save it"


def packed_format(config: Config, infos: Mapping[str, TensorInfo]) -> str | None:
    """The quantization method of a checkpoint, from its config or its tensor names, or None."""
    quantization = config.get("quantization_config")
    if isinstance(quantization, dict):
        method = str(quantization.get("quant_method", "an unnamed method"))[:40]
        return METHOD_NAMES.get(method, method)
    schemes = sorted({info.packing.scheme for info in infos.values() if info.packing is not None})
    if schemes:
        return ", ".join(schemes)
    packed = next((name for name in infos if name.endswith(tuple(PACKED_SUFFIXES))), None)
    return None if packed is None else next(m for suffix, m in PACKED_SUFFIXES.items() if packed.endswith(suffix))


def refuse_packed(method: str) -> UnsupportedModel:
    return UnsupportedModel(f"the attention weights are quantized ({method}), which headspan does not read; {REMEDY}")


def check_readable(info: TensorInfo, method: str | None) -> None:
    """Refuse a tensor whose dtype shows that it is packed."""
    if info.dtype not in READABLE:
        packing = f"quantized weights ({method or 'method not stated'})"
        raise UnsupportedModel(f"tensor '{info.name}' is stored as {info.dtype}: {packing}; {REMEDY}")
