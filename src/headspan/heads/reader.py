"""How weights are read: from which stack and layers, into which dtype and device, in which fold state.

The reader turns descriptions (a `Linear`, a `Norm`, a table) into tensors, checked by the checkpoint and converted.
What can be asked of it is checked first; anything else is refused with what there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint import Checkpoint, StoredStack
from headspan.checkpoint.families import HeadNorm, Linear, Norm
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.checkpoint.stored_stack import stored_shape
from headspan.dims import ROLES, Fold, Role
from headspan.errors import ArgumentError, CheckpointError
from headspan.heads.norms import HeadNormWeights, NormWeights, checked_fold
from headspan.subspaces import unit_roundoff

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class WeightReader:
    """One stack of one checkpoint, and the form its weights are wanted in."""

    checkpoint: Checkpoint
    stored: StoredStack
    dtype: torch.dtype
    device: torch.device
    fold: Fold
    center: bool

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        stack: str | None,
        dtype: torch.dtype | str | None,
        device: torch.device | str,
        fold: str,
        center: bool,
    ) -> WeightReader:
        """Refused where there is no such stack, or it cannot be had in that form."""
        stored = checkpoint.stack(stack)
        checked = checked_fold(stored, fold, center, checkpoint.family)
        wanted = checked_dtype(dtype, stored_dtype(stored))
        return cls(checkpoint, stored, wanted, checked_device(device), checked, center)

    @property
    def d_model(self) -> int:
        return self.stored.stack.d_model

    @property
    def stored_dtype(self) -> torch.dtype:
        return stored_dtype(self.stored)

    def roundoff(self, linear: Linear) -> float:
        """The relative error of a stored matrix as it is read: of its packing, its dtype or the one wanted."""
        info = self.stored.names.require(linear.weight)
        own: torch.dtype = getattr(torch, info.dtype)
        return max(self.checkpoint.store.roundoff(info.name), unit_roundoff(own), unit_roundoff(self.dtype))

    @property
    def stored_as(self) -> str:
        """How the attention weights are stored, in words; the most frequent way where there are several."""
        ways = Counter(info.stored_as for info in attention_infos(self.stored))
        return ways.most_common(1)[0][0]

    def convert(self, tensor: Tensor) -> Tensor:
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

    def head_norm(self, role: Literal["Q", "K"], layer: int) -> HeadNormWeights | None:
        """The norm of a layer's queries or keys; None in most families."""
        stack = self.stored.stack
        norm = stack.query_norm if role == "Q" else stack.key_norm
        if norm is None:
            return None
        has_bias = norm.bias and self.stored.names.find(norm.bias.format(layer=stack.key(layer), head=0))
        gain = self._per_head(norm, norm.weight, role, layer) + norm.offset
        bias = self._per_head(norm, norm.bias, role, layer) if norm.bias and has_bias else None
        return HeadNormWeights(norm.kind, gain, bias, norm.eps, joint=norm.span == "all heads")

    def _per_head(self, norm: HeadNorm, template: str, role: Role, layer: int) -> Float[Tensor, "head d_head"]:
        rows = self.stored.stack.projections[role].rows
        n_heads, d_head = rows.n_heads, rows.d_head
        if "{head}" in template:
            names = (template.replace("{head}", str(head)) for head in range(n_heads))
            return torch.stack([self.vector(name, layer, (d_head,)) for name in names])
        if norm.span == "head":
            return self.vector(template, layer, (d_head,)).expand(n_heads, d_head)
        shape = (n_heads, d_head) if norm.span == "each head" else (n_heads * d_head,)
        return self.vector(template, layer, shape).reshape(n_heads, d_head)

    def rows(self, name: str, width: int | None = None) -> Tensor:
        """An embedding table [rows, d_model, or another width] by its stored name; a leading axis of one is dropped."""
        shape = self.checkpoint.store.infos[name].shape
        if len(shape) != 2 and not (len(shape) == 3 and shape[0] == 1):
            raise CheckpointError(f"tensor '{name}' has shape {shape}; an embedding table has two axes")
        expected = (*shape[:-1], self.d_model if width is None else width)
        return self._read({name: expected})[0].reshape(expected[-2:])

    def _read(self, shapes: Mapping[str, tuple[int, ...]]) -> list[Tensor]:
        tensors = self.checkpoint.take(shapes)
        return [self.convert(tensors[name]) for name in shapes]


def attention_infos(stored: StoredStack) -> Iterator[TensorInfo]:
    """The stored query matrices, then those of keys, values and outputs."""
    weights = (stored.role_linear(role, layer).weight for role in ROLES for layer in range(stored.stack.n_layers))
    return (stored.names.infos[found] for found in map(stored.names.find, weights) if found is not None)


def stored_dtype(stored: StoredStack) -> torch.dtype:
    """The dtype that the attention weights are read in."""
    dtype: torch.dtype = getattr(torch, next(attention_infos(stored)).dtype)
    return dtype


def checked_dtype(dtype: torch.dtype | str | None, stored: torch.dtype) -> torch.dtype:
    """The precision to compute in: float32 or float64, by default that of the file, or float32 for half precision."""
    if dtype is None:
        return torch.float32 if stored in HALF else stored
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in (torch.float32, torch.float64):
        raise ArgumentError(f"dtype={dtype!r} cannot be computed in; use float32 or float64")
    return found


def checked_device(device: torch.device | str) -> torch.device:
    """A device by its name."""
    try:
        return torch.device(device)
    except RuntimeError as problem:
        raise ArgumentError(f"device={device!r} is not a device; write it like cpu, cuda or cuda:1") from problem


def checked_layers(layers: Sequence[int] | range | None, stored: StoredStack) -> tuple[int, ...]:
    """Layers that have attention, each once; by default all of them."""
    if layers is None:
        return stored.attention_layers
    chosen, n_layers = tuple(layers), stored.stack.n_layers
    wrong = [layer for layer in chosen if not isinstance(layer, int) or not 0 <= layer < n_layers]
    if wrong or not chosen or len(set(chosen)) < len(chosen):
        problem = f"layer {wrong[0]!r}" if wrong else "an empty or repeating choice of layers"
        raise ArgumentError(f"{problem} does not fit a model with layers 0..{n_layers - 1}")
    other = next((layer for layer in chosen if layer in stored.other_layers), None)
    if other is not None:
        raise ArgumentError(f"layer {other} has no attention; those that have are {span_text(stored.attention_layers)}")
    return chosen


def checked_roles(roles: Sequence[str]) -> tuple[Role, ...]:
    """Roles in their usual order, each once."""
    unknown = [role for role in roles if role not in ROLES]
    if unknown or not roles:
        found = f"unknown role {unknown[0]!r}" if unknown else "no role was asked for"
        raise ArgumentError(f"{found}; roles are Q, K, V, O")
    return tuple(role for role in ROLES if role in roles)


def span_text(layers: tuple[int, ...]) -> str:
    """Layers for reading: `0..11` where none is left out, a list otherwise."""
    return f"{layers[0]}..{layers[-1]}" if layers == tuple(range(layers[0], layers[-1] + 1)) else str(list(layers))
