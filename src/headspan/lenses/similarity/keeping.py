"""The attention spaces of all heads, kept for distances across layers: in memory, or in a scratch file if too many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.lenses.similarity.spaces import SpaceChoice, layer_bytes
from headspan.subspaces import Subspace
from headspan.subspaces.slabs import ScratchSlabs, scratch_slabs


class KeptSpaces:
    """Spaces that are added one batch after the other and handed out by ranges, `at_once` of them at most."""

    def __init__(self, rows: Tensor | ScratchSlabs, at_once: int) -> None:
        self._rows, self.at_once = rows, at_once
        self._ranks: list[Tensor] = []

    @property
    def scratch_bytes(self) -> int:
        """What they take on the disk."""
        if isinstance(self._rows, Tensor):
            return 0
        n, p, d = self._rows.shape
        return n * p * d * self._rows.dtype.itemsize

    def __len__(self) -> int:
        return sum(map(len, self._ranks))

    def add(self, S: Subspace) -> None:
        """The spaces of the next heads."""
        start, rows = len(self), S.basis.mT
        if isinstance(self._rows, Tensor):
            self._rows[start : start + len(rows)] = rows
        else:
            self._rows.append(rows)
        self._ranks.append(S.rank)

    def members(self, start: int, stop: int) -> Subspace:
        """Some of them, by their number."""
        rows = self._rows[start:stop] if isinstance(self._rows, Tensor) else self._rows.members(start, stop)
        return Subspace(rows.mT, torch.cat(self._ranks)[start:stop])


@contextmanager
def kept_spaces(heads: Heads, choice: SpaceChoice, memory: int | str) -> Iterator[KeptSpaces]:
    """Room for all attention spaces: in memory if it is a third of the budget at most and leaves enough for a layer."""
    n, p, d = shape = (heads.n_layers * heads.n_heads, choice.columns(heads), heads.d_model)
    budget, one = memory_bytes(memory), p * d * choice.dtype.itemsize
    if n * one <= min(budget // 3, budget * 2 // 3 - sum(layer_bytes(heads, choice))):
        yield KeptSpaces(torch.empty(shape, dtype=choice.dtype, device=heads.device), at_once=n)
        return
    with scratch_slabs(shape, height=p, dtype=choice.dtype, device=heads.device) as file:
        yield KeptSpaces(file, at_once=max(1, budget // 6 // one))  # two ranges of them are held at a time
