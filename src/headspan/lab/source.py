"""Where a run's sequences come from: copying, sums, or a user's text.

Text: bytes, or the tokens of a given tokenizer. Nine tenths of the file train, the last tenth tests. All tokens but the
first are scored. The out-of-distribution test is copying: uniform tokens with a repeated block, which a model of text
can solve only by a rule and not by frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from headspan.errors import ArgumentError, HeadspanError
from headspan.input_files import file_bytes
from headspan.lab.arithmetic import addition_sequences
from headspan.lab.sequences import Sequences, copying_sequences
from headspan.lab.task import Task
from headspan.runtime.boundary import check_tokenizer, library_boundary

BYTES, TRAINING_SHARE = 256, 0.9
LARGEST_CORPUS = 2**30
"""Bytes of a text to train on."""
TEST_SEEDS = {"id": 1_000_001, "ood": 1_000_002}
"""Test sets are the same for every run, and their seeds lie beyond those that runs train with."""
Part = Literal["train", "id", "ood"]


def text_tokens(path: Path, tokenizer: Path | None = None) -> Int[Tensor, " token"]:
    """All tokens of a file: its bytes, or what `tokenizer` (a tokenizer.json) makes of it."""
    try:
        content = file_bytes(path, LARGEST_CORPUS)
    except HeadspanError as problem:
        raise HeadspanError(f"text file {problem}") from problem
    if tokenizer is None:
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).long() if content else torch.zeros(0).long()
    with library_boundary(f"the tokenizer '{tokenizer}'"):
        ids = _open_tokenizer(tokenizer).encode(content.decode("utf-8", errors="replace")).ids
    return torch.tensor(ids, dtype=torch.int64)


def vocabulary_size(tokenizer: Path | None) -> int:
    """How many tokens there are: 256 bytes, or those of a tokenizer.json."""
    return BYTES if tokenizer is None else int(_open_tokenizer(tokenizer).get_vocab_size())


def _open_tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise HeadspanError(
            "a tokenizer file needs the package tokenizers; leave it out to train on bytes"
        ) from problem
    try:
        check_tokenizer(path)
        found = Tokenizer.from_file(str(path))
    except Exception as problem:  # the package raises nothing more specific
        raise HeadspanError(f"tokenizer '{path}' cannot be read: {problem}; it is a tokenizer.json") from problem
    found.no_padding()
    found.no_truncation()
    return found


def text_sequences(
    tokens: Int[Tensor, " token"], task: Task, count: int, generator: torch.Generator, test: bool = False
) -> Sequences:
    """Windows of a text at random places, of its training or its test part."""
    border = int(TRAINING_SHARE * len(tokens))
    part = tokens[border:] if test else tokens[:border]
    if len(part) <= task.length:
        least = int(task.length / (1 - TRAINING_SHARE)) + 20
        raise ArgumentError(
            f"the text has {len(tokens)} tokens; sequences of {task.length} need at least {least}, "
            "or use --set length=N"
        )
    if int(tokens.max()) >= task.vocabulary:
        raise ArgumentError(
            f"the text holds token {int(tokens.max())}, but the vocabulary has {task.vocabulary}; "
            "use --set vocabulary=N"
        )
    start = torch.randint(len(part) - task.length, (count, 1), generator=generator)
    place = start + torch.arange(task.length)
    scored = torch.ones(count, task.length, dtype=torch.bool)
    scored[:, 0] = False
    return Sequences(part[place], scored, torch.arange(task.length).expand(count, -1).clone())


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
    def of(cls, task: Task, text: str | None = None, tokenizer: str | None = None) -> Source:
        """The source of a task, with the files of a text task."""
        if text is None or task.kind != "text":
            return cls(task)
        return cls(task, text_tokens(Path(text), None if tokenizer is None else Path(tokenizer)))

    def draw(self, count: int, generator: torch.Generator, part: Part = "train") -> Sequences:
        """`count` sequences of training or of a test."""
        if self.text is not None and part != "ood":
            return text_sequences(self.text, self.task, count, generator, test=part == "id")
        draw = addition_sequences if self.task.kind == "addition" else copying_sequences
        return draw(self.task, count, generator, ood=part == "ood")

    def test(self, part: Literal["id", "ood"], count: int) -> Sequences:
        """A test set; the same for every run of a task."""
        return self.draw(count, torch.Generator().manual_seed(TEST_SEEDS[part]), part)

    def tests(self, count: int, device: str) -> Tests:
        """Both test sets, on a device."""
        return Tests(*(self.test(part, count).to(torch.device(device)) for part in ("id", "ood")))
