"""A store of quantized weights as one of plain ones: every weight under its own name, unpacked when it is read.

1. Read what is no header and yet decides a shape: bitsandbytes' states and compressed-tensors' `weight_shape`. Layers
   are alike, so one tensor of each kind and size is read, and every other is held against it when its weight is read.
2. Ask every scheme which weights the tensors make up. Their names and shapes decide, not lists of modules in a config.
3. Hide the tensors that weights are made of, and scales of activations.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.formats.local_files import LocalFiles
from headspan.checkpoint.formats.packed.bitsandbytes import STATE, State, find_bitsandbytes_weight
from headspan.checkpoint.formats.packed.four_bit_floats import find_four_bit_floats
from headspan.checkpoint.formats.packed.scaled import find_packed_integers, find_scaled_weight
from headspan.checkpoint.formats.packed.settings import Settings
from headspan.checkpoint.formats.packed.weight import Infos, PackedWeight
from headspan.checkpoint.formats.packed.words import find_word_weight
from headspan.checkpoint.formats.tensors import CODES, TensorInfo, TensorStore
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch

BESIDE = re.compile(
    r"\.(input_scale|input_zero_point|input_global_scale|output_scale|output_zero_point|weight_format|g_idx|"
    r"weight_zero_point|input_scale_ub|activation_scale|[qkv]_scale|[qkv]_zero_point|[qkv]_proj\.[qkv]_scale)$"
)
"""What quantizers store for activations, or beside a weight that does not need it."""
SHAPE = ".weight_shape"
MAX_SMALL = 4096
"""Bytes of a tensor that says a shape; real ones have 16 to some 200."""
BATCH = 64 * 2**20
"""Bytes of stored tensors that are asked for at once."""
T = TypeVar("T")


@dataclass(frozen=True)
class UnpackedWeights:
    """The tensors of another store, with its quantized weights in float32."""

    stored: TensorStore
    weights: Mapping[str, PackedWeight]
    infos: Infos
    _roundoffs: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def bytes_on_disk(self) -> int | None:
        return self.stored.bytes_on_disk

    @property
    def bytes_transferred(self) -> int | None:
        return self.stored.bytes_transferred

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        plain = [name for name in names if name not in self.weights]
        tensors = self.stored.read(plain) if plain else {}
        for batch in _batches([self.weights[name] for name in names if name in self.weights]):
            parts = self.stored.read([part.name for weight in batch for part in weight.parts.values()])
            for weight in batch:
                own = {role: parts.pop(part.name).cpu() for role, part in weight.parts.items()}
                tensors[weight.info.name] = self._unpack(weight, own)
        return {name: tensors[name] for name in names}

    def _unpack(self, weight: PackedWeight, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        import torch

        tensor, error = weight.unpack(parts)
        rms = float(torch.linalg.vector_norm(tensor)) / max(tensor.numel(), 1) ** 0.5
        self._roundoffs[weight.info.name] = error / rms if rms > 0 else 0.0
        return tensor.T if weight.turned else tensor

    def roundoff(self, name: str) -> float:
        if name not in self.weights:
            return self.stored.roundoff(name)
        if name not in self._roundoffs:
            self.read([name])
        return self._roundoffs[name]

    def content_hash(self) -> str:
        return self.stored.content_hash()


def unpack_weights(store: TensorStore, config: Config, transposed: bool) -> TensorStore:
    """The store with its quantized weights unpacked; itself where it has none.

    `transposed` says that the model keeps its matrices as [in, out] (Conv1D); quantizers store them as [out, in].
    """
    infos = store.infos
    if not any(info.dtype in CODES for info in infos.values()):
        return store
    settings = Settings.of(config)
    weights = {weight.info.name: weight for weight in _weights(store, settings, transposed)}
    if not weights:
        return store
    used = {part.name for weight in weights.values() for part in weight.parts.values()}
    kept = {name: info for name, info in infos.items() if name not in used and not BESIDE.search(name)}
    both = next((name for name in weights if name in kept), None)
    if both is not None:
        raise CheckpointError(f"tensor '{both}' is stored twice, quantized and plain; save the model again")
    return UnpackedWeights(store, weights, {**kept, **{name: weight.info for name, weight in weights.items()}})


def _weights(store: TensorStore, settings: Settings, transposed: bool) -> Iterator[PackedWeight]:
    infos = store.infos
    states = _by_kind(store, [name for name in infos if STATE in name], State.of)
    shapes = _by_kind(store, [name for name in infos if name.endswith(SHAPE)], _stored_shape)
    used: set[str] = set()
    finders: tuple[Callable[[TensorInfo], PackedWeight | None], ...] = (
        lambda info: find_word_weight(infos, info, settings, transposed),
        lambda info: find_packed_integers(infos, info, settings, shapes),
        lambda info: find_bitsandbytes_weight(infos, info, transposed, states),
        lambda info: find_four_bit_floats(infos, info),
        lambda info: find_scaled_weight(infos, info, settings),
    )
    for find in finders:
        for info in infos.values():
            weight = find(info) if info.dtype in CODES and info.name not in used else None
            if weight is not None:
                used.update(part.name for part in weight.parts.values())
                yield weight


def _by_kind(store: TensorStore, names: Sequence[str], meaning: Callable[[bytes, str], T]) -> dict[str, T]:
    """What small tensors mean: one of each kind is read, of the same name but for numbers, beside codes as large."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        info = store.infos[name]
        if info.n_bytes > MAX_SMALL:
            raise CheckpointError(f"tensor '{name}' is {info.n_bytes:,} bytes long; no real one exceeds {MAX_SMALL:,}")
        whole = f"{name.removesuffix(SHAPE)}.weight_packed" if name.endswith(SHAPE) else name.partition(STATE)[0]
        codes = store.infos.get(whole)
        kinds.setdefault((re.sub(r"\d+", "*", name), codes and codes.shape), []).append(name)
    contents = _contents(store, [alike[0] for alike in kinds.values()])
    return {name: meaning(contents[alike[0]], alike[0]) for alike in kinds.values() for name in alike}


def _contents(store: TensorStore, names: Sequence[str]) -> dict[str, bytes]:
    """Bytes of small tensors; without torch where they are in local safetensors files."""
    if isinstance(store, LocalFiles) and all(store.infos[name].place.endswith(".safetensors") for name in names):
        return store.read_bytes(names)
    return {name: tensor.cpu().numpy().tobytes() for name, tensor in store.read(names).items()} if names else {}


def _stored_shape(content: bytes, name: str) -> tuple[int, ...]:
    sizes = struct.unpack(f"<2{'q' if len(content) == 16 else 'i'}", content) if len(content) in (8, 16) else (0,)
    if not all(1 <= size <= MAX_WIDTH for size in sizes):
        raise CheckpointError(f"tensor '{name}' does not hold the two sizes of a matrix; the file is damaged")
    return sizes


def _batches(weights: Sequence[PackedWeight]) -> Iterator[list[PackedWeight]]:
    """Weights to be read together: one after another, small ones in one go."""
    batch: list[PackedWeight] = []
    for weight in weights:
        if batch and sum(each.n_bytes for each in (*batch, weight)) > BATCH:
            yield batch
            batch = []
        batch.append(weight)
    if batch:
        yield batch
