"""A user's text file as training data: bytes, or the tokens of a given tokenizer.

Nine tenths of the file train, the last tenth tests. All tokens but the first are scored. The out-of-distribution test
is copying: uniform tokens with a repeated block, which a model of text can solve only by a rule and not by frequencies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from headspan.errors import HeadspanError
from headspan.lab.sequences import Sequences, copying_sequences
from headspan.lab.task import Task

BYTES = 256
TRAINING_SHARE = 0.9


def text_tokens(path: Path, tokenizer: Path | None = None) -> Int[Tensor, " token"]:
    """All tokens of a file: its bytes, or what `tokenizer` (a tokenizer.json) makes of it."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise HeadspanError(f"text file '{path}' cannot be read: {problem.strerror or problem}") from problem
    if tokenizer is None:
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).long() if content else torch.zeros(0).long()
    return torch.tensor(_encoded(content, tokenizer), dtype=torch.int64)


def vocabulary_of(tokenizer: Path | None) -> int:
    """How many tokens there are: 256 bytes, or those of a tokenizer.json."""
    return BYTES if tokenizer is None else int(_loaded(tokenizer).get_vocab_size())


def _encoded(content: bytes, tokenizer: Path) -> list[int]:
    ids: list[int] = _loaded(tokenizer).encode(content.decode("utf-8", errors="replace")).ids
    return ids


def _loaded(tokenizer: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise HeadspanError(
            "a tokenizer file needs the package tokenizers; leave it out to train on bytes"
        ) from problem
    try:
        return Tokenizer.from_file(str(tokenizer))
    except Exception as problem:  # the package raises nothing more specific
        raise HeadspanError(f"tokenizer '{tokenizer}' cannot be read: {problem}; it is a tokenizer.json") from problem


def text_sequences(
    tokens: Int[Tensor, " token"], task: Task, count: int, generator: torch.Generator, test: bool = False
) -> Sequences:
    """Windows of a text at random places, of its training or its test part."""
    border = int(TRAINING_SHARE * len(tokens))
    part = tokens[border:] if test else tokens[:border]
    if len(part) <= task.length:
        raise HeadspanError(
            f"the text has {len(tokens)} tokens; sequences of {task.length} need at least "
            f"{int(task.length / (1 - TRAINING_SHARE)) + 20}, or use --set length=N"
        )
    if int(tokens.max()) >= task.vocabulary:
        raise HeadspanError(
            f"the text holds token {int(tokens.max())}, but the vocabulary has {task.vocabulary}; "
            "use --set vocabulary=N"
        )
    start = torch.randint(len(part) - task.length, (count, 1), generator=generator)
    place = start + torch.arange(task.length)
    scored = torch.ones(count, task.length, dtype=torch.bool)
    scored[:, 0] = False
    return Sequences(part[place], scored, torch.arange(task.length).expand(count, -1).clone())


def text_copying(task: Task, count: int, generator: torch.Generator) -> Sequences:
    """The out-of-distribution test of a text model: random blocks to copy."""
    return copying_sequences(task, count, generator, ood=True)
