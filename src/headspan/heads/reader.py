"""How weights are read: from which stack, into which dtype and device, in which fold state.

The reader turns descriptions (a `Linear`, a `Norm`, a table) into tensors, checked by the checkpoint and converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from headspan.checkpoint import Checkpoint, StoredStack
from headspan.checkpoint.families import Linear, Norm
from headspan.checkpoint.stored_stack import stored_shape
from headspan.dims import Fold
from headspan.errors import CheckpointError
from headspan.heads.folding import NormWeights


@dataclass(frozen=True)
class WeightReader:
    """One stack of one checkpoint, and the form its weights are wanted in."""

    checkpoint: Checkpoint
    stored: StoredStack
    dtype: torch.dtype
    device: torch.device
    fold: Fold
    center: bool

    @property
    def d_model(self) -> int:
        return self.stored.stack.d_model

    @property
    def stored_dtype(self) -> torch.dtype:
        return stored_dtype(self.stored)

    def converted(self, tensor: Tensor) -> Tensor:
        """`tensor` on the wanted device in the wanted dtype; itself where it is that already."""
        return tensor.to(self.device, self.dtype)

    def linear_shapes(self, linear: Linear, n_in: int, n_out: int) -> dict[str, tuple[int, ...]]:
        """Stored names of a matrix and, second, of its bias where there is one, with the shapes they must have."""
        weight = self.stored.names.require(linear.weight).name
        shapes: dict[str, tuple[int, ...]] = {weight: stored_shape(linear, n_in, n_out)}
        bias = self.stored.bias_name(linear)
        return shapes if bias is None else {**shapes, bias: (n_out,)}

    def linear(self, linear: Linear, n_in: int, n_out: int) -> tuple[Tensor, Tensor | None]:
        """A stored matrix as [n_in, n_out] for `x @ W`, with its bias."""
        weight, *bias = self._read(self.linear_shapes(linear, n_in, n_out))
        return (weight if linear.stored == "in_out" else weight.T), bias[0] if bias else None

    def norm(self, norm: Norm, layer: int | None = None, width: int | None = None) -> NormWeights:
        """A norm's gain and bias; a gain of ones where the norm has no parameters or the layer no norm."""
        width = self.d_model if width is None else width
        if not norm.weight or layer in norm.absent:
            return NormWeights(norm.kind, torch.ones(width, dtype=self.dtype, device=self.device), None, norm.eps)
        key = "" if layer is None else self.stored.stack.key(layer)
        names = self.stored.names
        weight = names.require(*(name.format(layer=key) for name in norm.weight)).name
        bias = names.find(*(name.format(layer=key) for name in norm.bias)) if norm.bias else None
        gain, *shift = self._read({name: (width,) for name in (weight, bias) if name is not None})
        return NormWeights(
            norm.kind, gain + norm.offset if norm.offset else gain, shift[0] if shift else None, norm.eps
        )

    def vector(self, template: str, layer: int, shape: tuple[int, ...]) -> Tensor:
        """One tensor of a layer, by its template."""
        info = self.stored.names.require(template.format(layer=self.stored.stack.key(layer)))
        return self._read({info.name: shape})[0]

    def rows(self, name: str, width: int | None = None) -> Tensor:
        """An embedding table [rows, d_model, or another width] by its stored name; a leading axis of one is dropped."""
        shape = self.checkpoint.store.infos[name].shape
        if len(shape) != 2 and not (len(shape) == 3 and shape[0] == 1):
            raise CheckpointError(f"tensor '{name}' has shape {shape}; an embedding table has two axes")
        expected = (*shape[:-1], self.d_model if width is None else width)
        return self._read({name: expected})[0].reshape(expected[-2:])

    def _read(self, shapes: Mapping[str, tuple[int, ...]]) -> list[Tensor]:
        tensors = self.checkpoint.take(shapes)
        return [self.converted(tensors[name]) for name in shapes]


def stored_dtype(stored: StoredStack) -> torch.dtype:
    """The dtype of the attention weights in the file."""
    names = (stored.role_linear("Q", layer).weight for layer in range(stored.stack.n_layers))
    found = next(filter(None, map(stored.names.find, names)))
    dtype: torch.dtype = getattr(torch, stored.names.infos[found].dtype)
    return dtype
