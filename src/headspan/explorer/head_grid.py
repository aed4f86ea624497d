"""Which heads a model has, as far as a page needs to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headspan.heads import Heads

MOST_HEADS = 300
"""Of a model with more heads than this a page carries the strongest pairs alone."""


@dataclass(frozen=True)
class HeadGrid:
    """Which heads a model has."""

    layers: Sequence[int]
    n_heads: int
    n_kv_heads: int

    @classmethod
    def of(cls, heads: Heads) -> HeadGrid:
        """The grid of a model's heads."""
        return cls([int(layer) for layer in heads.layers], heads.n_heads, heads.n_kv_heads)

    @property
    def grouped(self) -> bool:
        """Whether kv heads are fewer than heads, and have labels of their own."""
        return self.n_kv_heads < self.n_heads

    @property
    def large(self) -> bool:
        """Whether a page carries only the strongest pairs."""
        return len(self.layers) * self.n_heads > MOST_HEADS
