"""Where a run's sequences come from: its task's law, and two fixed test sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from headspan.lab.addition import addition_sequences
from headspan.lab.recipe import Recipe
from headspan.lab.sequences import Sequences, copying_sequences
from headspan.lab.task import Task
from headspan.lab.text import text_copying, text_sequences, text_tokens

Part = Literal["train", "id", "ood"]
TEST_SEEDS = {"id": 1_000_001, "ood": 1_000_002}
"""Test sets are the same for every run, and their seeds lie beyond those that runs train with."""


@dataclass(frozen=True)
class Tests:
    """The two test sets of a run."""

    id: Sequences
    ood: Sequences


@dataclass(frozen=True)
class Source:
    """Draws sequences of a task; `text` holds the tokens of a text task."""

    task: Task
    text: Int[Tensor, " token"] | None = None

    @classmethod
    def of(cls, recipe: Recipe) -> Source:
        """The source a recipe names."""
        if recipe.text is None or recipe.task.kind != "text":
            return cls(recipe.task)
        return cls(
            recipe.task, text_tokens(Path(recipe.text), None if recipe.tokenizer is None else Path(recipe.tokenizer))
        )

    def drawn(self, count: int, generator: torch.Generator, part: Part = "train") -> Sequences:
        """`count` sequences of training or of a test."""
        if self.text is not None:
            if part == "ood":
                return text_copying(self.task, count, generator)
            return text_sequences(self.text, self.task, count, generator, test=part == "id")
        draw = addition_sequences if self.task.kind == "addition" else copying_sequences
        return draw(self.task, count, generator, ood=part == "ood")

    def test(self, part: Literal["id", "ood"], count: int) -> Sequences:
        """A test set; the same for every run of a task."""
        return self.drawn(count, torch.Generator().manual_seed(TEST_SEEDS[part]), part)
