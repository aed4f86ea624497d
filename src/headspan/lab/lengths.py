"""Copying in sequences longer than those trained on, by position scheme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from headspan.errors import HeadspanError
from headspan.lab.model import LabModel
from headspan.lab.scores import measured
from headspan.lab.sequences import copying_sequences
from headspan.lab.task import Task

SEED = 3_000_000


def length_generalisation(
    model: LabModel, task: Task, lengths: Sequence[int], count: int = 64, seed: int = SEED
) -> dict[int, float]:
    """OOD accuracy by sequence length, blocks as long as those of the OOD test.

    Returns
    -------
    dict
        In [0, 1], 1/vocabulary by chance; NaN where a learned position table is too short to say anything.
    """
    found = {}
    for length in lengths:
        if length < 2 * task.ood_block:
            raise HeadspanError(f"two blocks of {task.ood_block} do not fit into {length} positions; use longer ones")
        if model.shape.positions == "learned" and length > model.shape.length:
            found[length] = float("nan")
            continue
        longer = replace(task, length=length)
        sequences = copying_sequences(longer, count, torch.Generator().manual_seed(seed), ood=True)
        found[length] = measured(model, sequences.to(next(model.parameters()).device))["accuracy"]
    return found
