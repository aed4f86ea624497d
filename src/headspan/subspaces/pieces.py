"""A list of members that is held as pieces of batches, so that no order of them costs a copy.

Bases of one role of GPT-2 are 28 MB. Copying the three roles that read into one batch took as long as a tenth of all
their kernels, most of it for the system to hand out the memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headspan.subspaces.staircase import Run

Pieces = Sequence[Tensor]


def pieces_of(batches: Sequence[Tensor], runs: Sequence[Run]) -> Pieces:
    """The members that the runs name, in their order; if there are none, empty pieces of the batches' shapes."""
    pieces = [batches[run.batch][run.start : run.stop] for run in runs]
    return pieces or [batch[:0] for batch in batches]


def count(A: Pieces) -> int:
    """The length of the list."""
    return sum(len(piece) for piece in A)


def members(A: Pieces, start: int, stop: int) -> Pieces:
    """Members start:stop of the list."""
    kept, offset = [], 0
    for piece in A:
        kept.append(piece[max(0, start - offset) : max(0, stop - offset)])
        offset += len(piece)
    return [piece for piece in kept if len(piece)]


def joined(A: Pieces) -> Tensor:
    """One tensor [n, d, p] of all members; narrower ones get zero columns, which add nothing to an overlap."""
    if len(A) == 1:
        return A[0]
    width = max(piece.shape[-1] for piece in A)
    wide = [
        piece if piece.shape[-1] == width else torch.nn.functional.pad(piece, (0, width - piece.shape[-1]))
        for piece in A
    ]
    return torch.cat(wide)
