"""A weight whose stored numbers are codes: its name and shape as a model has it, the tensors it is made of, its value.

Everything that headers can contradict is checked when a checkpoint is opened, without torch; contents (scales, group
numbers) are checked when a weight is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from headspan.checkpoint.formats.tensors import ITEM_BYTES, Packing, TensorInfo
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch

Infos = Mapping[str, TensorInfo]
FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})


@dataclass(frozen=True)
class PackedWeight(ABC):
    """One weight of a quantized checkpoint; every scheme has its subclass."""

    info: TensorInfo
    """As a model has it: its own name and shape, float32, with the packing."""
    parts: Mapping[str, TensorInfo]
    """What a stored tensor is for -> the tensor."""
    turned: bool
    """Whether codes stand for [out, in] while the model keeps the weight as [in, out] (GPT-2's Conv1D)."""

    @property
    def n_bytes(self) -> int:
        """Bytes of the stored tensors."""
        return sum(part.n_items * ITEM_BYTES[part.dtype] for part in self.parts.values())

    @property
    def coded_shape(self) -> tuple[int, ...]:
        """The shape before turning."""
        return self.info.shape[::-1] if self.turned else self.info.shape

    @abstractmethod
    def unpack(self, parts: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        """The weight in float32, shaped `coded_shape`, and the root mean square error that packing left in an entry."""


def logical_info(name: str, shape: Sequence[int], place: str, packing: Packing, turned: bool = False) -> TensorInfo:
    """Facts about a weight as it is read."""
    return TensorInfo(name, "float32", tuple(shape[::-1] if turned else shape), place, packing)


def require_part(infos: Infos, name: str, of: str, dtypes: Collection[str] = ()) -> TensorInfo:
    """The stored tensor `name`, which the codes `of` cannot do without, in one of the dtypes."""
    found = infos.get(name)
    if found is None:
        raise CheckpointError(f"quantized weight '{of}' has no '{name}'; the checkpoint is damaged: download it again")
    if dtypes and found.dtype not in dtypes:
        raise CheckpointError(
            f"tensor '{name}' is stored as {found.dtype}; a quantized weight needs {' or '.join(sorted(dtypes))} there"
        )
    return found


def check_part(part: TensorInfo, shape: tuple[int, ...]) -> None:
    """Raise unless a stored tensor has the shape that its neighbors imply."""
    if part.shape != shape:
        raise CheckpointError(
            f"tensor '{part.name}' has shape {part.shape}, but the quantized weight beside it needs {shape}; "
            "the file is damaged, or the config belongs to another model"
        )


@dataclass(frozen=True)
class Groups:
    """Which entries of a matrix share a scale: blocks of `rows` x `columns`."""

    rows: int
    columns: int

    def text(self, shape: Sequence[int]) -> str | None:
        """In words, for a `Packing`."""
        if self.rows >= shape[0] > 1 and self.columns >= shape[1]:
            return None
        if self.rows > 1:
            return f"{self.rows} x {self.columns}"
        return "one row" if self.columns >= shape[1] else str(self.columns)


def groups_of(scale: TensorInfo, shape: Sequence[int], stated: Collection[tuple[int, int]] = ()) -> Groups:
    """The blocks that the shape of the scales implies for a matrix; those that a config states where it fits several.

    One scale is for the whole matrix, a vector of them for rows.
    """
    own = [size for size in scale.shape if size != 1]
    grid = (1, 1) if not own else scale.shape if len(scale.shape) == 2 else (*scale.shape, 1)
    if len(grid) != 2 or any(part < 1 or part > size for part, size in zip(grid, shape, strict=True)):
        raise CheckpointError(
            f"tensor '{scale.name}' has shape {scale.shape}, which cannot be scales of {tuple(shape)}"
        )
    for rows, columns in stated:
        if (ceil(shape[0] / rows), ceil(shape[1] / columns)) == grid:
            return Groups(rows, columns)
    for part, size in zip(grid, shape, strict=True):
        if size % part:
            raise CheckpointError(
                f"tensor '{scale.name}' holds {part} scales for {size} numbers, which does not divide; the config "
                "states no group size that fits"
            )
    return Groups(shape[0] // grid[0], shape[1] // grid[1])
