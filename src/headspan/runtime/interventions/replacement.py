"""Weights replaced by others: two heads trade places, or all weights are drawn as before training.

Heads trade queries, keys, values and outputs, with their biases and the gains of their norms. Within a layer this
changes nothing, since a layer adds up its heads; between layers it shows how far a head depends on its layer. In a
grouped model keys and values belong to several heads and stay where they are, and the two heads trade queries and
outputs only.

Weights are drawn anew the way the family itself draws them: a second module is made from the same config, so that every
rule of the family holds (GPT-2 scales its output matrices by depth, norms start at one), and its numbers are copied in.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headspan.dims import HeadLabel, Role
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.runtime.budget import require_copies
from headspan.runtime.interventions.edits import (
    Edits,
    Label,
    find_head,
    head_bias,
    head_gains,
    head_weight,
    shared_gain,
)
from headspan.runtime.model import RunnableModel
from headspan.runtime.module import quiet_transformers


@dataclass(frozen=True)
class SwappedHeads:
    """Two heads in each other's place."""

    one: Label
    other: Label

    @property
    def name(self) -> str:
        return f"{self.one} and {self.other} swapped"

    def apply(self, edits: Edits) -> None:
        model = edits.model
        pair = find_head(model, self.one), find_head(model, self.other)
        if any(label.kv for label in pair) or pair[0] == pair[1]:
            raise ArgumentError(
                f"two different heads can be swapped, such as L0H1 and L1H0; found {pair[0]} and {pair[1]}"
            )
        if any(projection.latent is not None for projection in model.stack.projections.values()):
            raise UnsupportedModel(f"heads of a {model.checkpoint.family} share latent spaces and cannot be swapped")
        for role in _roles(model):
            for mine, its in zip(*(_tensors(edits, role, label) for label in pair), strict=True):
                kept = mine.clone()
                mine.copy_(its)
                its.copy_(kept)

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        grouped = model.stack.n_kv_heads < model.n_heads
        return ("keys and values are shared by several heads and were not swapped",) if grouped else ()


def _roles(model: RunnableModel) -> tuple[Role, ...]:
    return ("Q", "O") if model.stack.n_kv_heads < model.n_heads else ("Q", "K", "V", "O")


def _tensors(edits: Edits, role: Role, label: HeadLabel) -> list[Tensor]:
    """Everything of a head that belongs to a role and to it alone."""
    found = [head_weight(edits, role, label.layer, label.head)]
    bias = None if role == "O" else head_bias(edits, role, label.layer, label.head)
    if bias is not None:
        found.append(bias)
    normed: dict[Role, Literal["Q", "K"]] = {"Q": "Q", "K": "K"}
    if role in normed and not shared_gain(edits.model):
        found += [values for values, _ in head_gains(edits, normed[role], label.layer, label.head)]
    return found


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
        require_copies(edits.model, 2, "weights drawn anew")
        drawn = dict(_fresh(module, self.seed).named_parameters())
        wanted = attention_parameters(edits.model) if self.attention_only else None
        for name, parameter in module.named_parameters():
            if wanted is None or id(parameter) in wanted:
                edits.keep(parameter).copy_(drawn[name])

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        return ()


def attention_parameters(model: RunnableModel) -> set[int]:
    """Identities of the parameters that the description counts as attention: matrices, biases, norms of queries."""
    found = set()
    for name in model.stored.claimed():
        home, _, leaf = name.rpartition(".")
        found.add(id(getattr(model.submodule(home), leaf)))
    return found


def _fresh(module: nn.Module, seed: int) -> nn.Module:
    kind: Any = type(module)
    # Families draw from the global generator, on the CPU; it is put back afterwards.
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.default_generator.manual_seed(seed)
        made: nn.Module = kind(deepcopy(module.config))
    return made
