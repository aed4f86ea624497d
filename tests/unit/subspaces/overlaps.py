"""The overlaps of two batches, for tests that need one table only."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headspan.subspaces import squared_overlaps


def pairwise_overlaps(A: Tensor, B: Tensor, *, dst_layer: Tensor | None = None, **options: Any) -> Tensor:
    dst_layers = None if dst_layer is None else [dst_layer]
    return squared_overlaps(A, [B], dst_layers=dst_layers, **options)[0]
