"""What llama.cpp's converter does to tensors, undone: one record each, which knows the shape before anything is read.

Rows of a matrix are its first axis, as torch keeps a Linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Axes = tuple[int, ...]


class Undo(Protocol):
    """From the tensors of a GGUF file to one of the family's."""

    def shape(self, *parts: Axes) -> Axes:
        """The shape of what `apply` gives; a ValueError where the parts do not fit."""

    def apply(self, *parts: Tensor) -> Tensor:
        """The tensor as the family has it."""


@dataclass(frozen=True)
class AsItIs:
    """Nothing was done."""

    def shape(self, *parts: Axes) -> Axes:
        return parts[0]

    def apply(self, *parts: Tensor) -> Tensor:
        return parts[0]


@dataclass(frozen=True)
class Unpaired:
    """Rotary pairs were brought side by side: row (i, half) of a head to (half, i)."""

    n_heads: int

    def shape(self, *parts: Axes) -> Axes:
        if parts[0][0] % (2 * self.n_heads):
            raise ValueError(f"{parts[0][0]} rows are not pairs of {self.n_heads} heads")
        return parts[0]

    def apply(self, *parts: Tensor) -> Tensor:
        tensor = parts[0]
        pairs = tensor.reshape(self.n_heads, -1, 2, *tensor.shape[1:])
        return pairs.transpose(1, 2).reshape(tensor.shape)


@dataclass(frozen=True)
class Shifted:
    """A norm's gain was stored with 1 added."""

    def shape(self, *parts: Axes) -> Axes:
        return parts[0]

    def apply(self, *parts: Tensor) -> Tensor:
        return parts[0] - 1


@dataclass(frozen=True)
class Transposed:
    """The last two axes of matrices were exchanged; biases, with fewer axes, are as they were."""

    n_axes: int = 2

    def shape(self, *parts: Axes) -> Axes:
        first = parts[0]
        return first if len(first) < self.n_axes else (*first[:-2], first[-1], first[-2])

    def apply(self, *parts: Tensor) -> Tensor:
        return parts[0] if parts[0].ndim < self.n_axes else parts[0].mT


@dataclass(frozen=True)
class Regrouped:
    """Queries, keys and values of each kv head, one group after another, were sorted into all queries, all keys, all
    values.
    """

    n_heads: int
    n_kv_heads: int
    d_head: int

    def shape(self, *parts: Axes) -> Axes:
        rows = (self.n_heads + 2 * self.n_kv_heads) * self.d_head
        if parts[0][0] != rows:
            raise ValueError(f"{parts[0][0]} rows are not the {rows} of fused queries, keys and values")
        return parts[0]

    def apply(self, *parts: Tensor) -> Tensor:
        import torch

        tensor, kv = parts[0], self.n_kv_heads
        sizes = [n * self.d_head for n in (self.n_heads, kv, kv)]
        groups = [part.reshape(kv, -1, *tensor.shape[1:]) for part in torch.split(tensor, sizes)]
        return torch.cat(groups, dim=1).reshape(tensor.shape)


@dataclass(frozen=True)
class Joined:
    """A matrix of every expert was cut into two: gate and up, one after the other."""

    def shape(self, *parts: Axes) -> Axes:
        return (parts[0][0], parts[0][1] + parts[1][1], *parts[0][2:])

    def apply(self, *parts: Tensor) -> Tensor:
        import torch

        return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Interleaved:
    """The same where gate and up took turns, and matrices had their input first (GPT-OSS)."""

    def shape(self, *parts: Axes) -> Axes:
        first = parts[0]
        return (first[0], 2 * first[1]) if len(first) == 2 else (first[0], first[2], 2 * first[1])

    def apply(self, *parts: Tensor) -> Tensor:
        import torch

        both = torch.stack(parts, dim=2).flatten(1, 2)
        return both if both.ndim == 2 else both.mT


@dataclass(frozen=True)
class Absorbed:
    """Keys [head, latent, feature] and values [head, feature, latent] were one matrix, head by head (DeepSeek)."""

    def shape(self, *parts: Axes) -> Axes:
        (heads, latent, keys), (_, values, _) = parts
        return heads * (keys + values), latent

    def apply(self, *parts: Tensor) -> Tensor:
        import torch

        return torch.cat([parts[0].mT, parts[1]], dim=1).flatten(0, 1)


@dataclass(frozen=True)
class Row:
    """Vectors of all heads were stacked; this is one of them."""

    index: int

    def shape(self, *parts: Axes) -> Axes:
        if self.index >= parts[0][0]:
            raise ValueError(f"{parts[0][0]} rows have no row {self.index}")
        return parts[0][1:]

    def apply(self, *parts: Tensor) -> Tensor:
        return parts[0][self.index]


@dataclass(frozen=True)
class Reshaped:
    """Only the axes differ."""

    into: Callable[[int], Axes]
    """The shape of so many numbers."""

    def shape(self, *parts: Axes) -> Axes:
        found = self.into(prod(parts[0]))
        if prod(found) != prod(parts[0]):
            raise ValueError(f"{parts[0]} cannot be {found}")
        return found

    def apply(self, *parts: Tensor) -> Tensor:
        return parts[0].reshape(self.shape(tuple(parts[0].shape)))
