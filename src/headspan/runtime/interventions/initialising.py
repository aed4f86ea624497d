"""Weights as they were before training: drawn anew, the way the family itself draws them.

A second module is made from the same config, so that every rule of the family holds (GPT-2 scales its output matrices
by depth, norms start at one), and its numbers are copied in.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headspan.runtime.interventions.edits import Edits
from headspan.runtime.loading import quiet_transformers
from headspan.runtime.model import RunnableModel


@dataclass(frozen=True)
class Reinitialized:
    """All parameters drawn anew, or those of the attention only."""

    seed: int = 0
    attention_only: bool = False

    @property
    def name(self) -> str:
        return f"random {'attention' if self.attention_only else 'weights'} (seed {self.seed})"

    def apply(self, edits: Edits) -> None:
        module = edits.model.module
        drawn = dict(_fresh(module, self.seed).named_parameters())
        wanted = attention_parameters(edits.model) if self.attention_only else None
        for name, parameter in module.named_parameters():
            if wanted is None or id(parameter) in wanted:
                edits.kept(parameter).copy_(drawn[name])

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        return ()


def attention_parameters(model: RunnableModel) -> set[int]:
    """Identities of the parameters that the description counts as attention: matrices, biases, norms of queries."""
    found = set()
    for name in model.stored.claimed():
        home, _, leaf = name.rpartition(".")
        found.add(id(getattr(model.named(home), leaf)))
    return found


def _fresh(module: nn.Module, seed: int) -> nn.Module:
    kind: Any = type(module)
    # Families draw from the global generator, on the CPU; it is put back afterwards.
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.default_generator.manual_seed(seed)
        made: nn.Module = kind(deepcopy(module.config))
    return made
