"""Tensors of a model that is already in memory, as a `TensorStore`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headspan.checkpoint.tensors import ITEM_BYTES, TensorInfo
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class InMemory:
    """A state dict; reading hands out its own tensors, detached, without a copy."""

    tensors: Mapping[str, torch.Tensor]

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

    @property
    def bytes_on_disk(self) -> int | None:
        return None

    @property
    def bytes_transferred(self) -> int | None:
        return None

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        return {name: self.tensors[name] for name in names}

    def content_hash(self) -> str:
        """Hash of names, shapes and bytes now; the tensors may change between two calls, so it is not kept."""
        import torch

        digest = hashlib.sha256()
        for name, info in sorted(self.infos.items()):
            digest.update(repr((name, info.dtype, info.shape)).encode())
            flat = self.tensors[name].cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        return f"sha256-of-state-dict:{digest.hexdigest()}"
