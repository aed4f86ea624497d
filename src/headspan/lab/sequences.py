"""Sequences of every task: copying, modular addition, a user's text; and the source that a run draws them from.

Copying, in which a block appears again:

1. Draw every position independently from the task's token law.
2. Draw a block length, how often the block appears, and non-overlapping places for it (the free positions fall into the
   gaps before, between and after the blocks, by sorted uniform draws).
3. Overwrite every later place by the block at the first.

`origin` says for each position where its token was first drawn. A token is predictable by copying where the model has
seen enough of a later block to know that it repeats (`BURN_IN` tokens). The token behind a block is not: a model that
goes on copying there is wrong by design, so it is not scored.

Addition: a row of sums `a b = c`, c = (a + b) mod p, with p one less than the vocabulary; the last token is the equals
sign. A fixed fifth of all pairs (a, b) is never trained on: the in-distribution test draws from the trained pairs, the
out-of-distribution test from the others.

Text: bytes, or the tokens of a given tokenizer. Nine tenths of the file train, the last tenth tests. All tokens but the
first are scored. The out-of-distribution test is copying: uniform tokens with a repeated block, which a model of text
can solve only by a rule and not by frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headspan.errors import ArgumentError, HeadspanError
from headspan.input_files import file_bytes
from headspan.lab.task import Task, token_probabilities
from headspan.runtime.boundary import check_tokenizer, library_boundary

BURN_IN = 4
"""Tokens of a later block that are seen before its next ones are scored; all but the last of a shorter block."""
SUM = 4
"""Positions of one sum."""
HELD_OUT_SHARE, HELD_OUT_SEED = 0.2, 2025
BYTES, TRAINING_SHARE = 256, 0.9
LARGEST_CORPUS = 2**30
"""Bytes of a text to train on."""
TEST_SEEDS = {"id": 1_000_001, "ood": 1_000_002}
"""Test sets are the same for every run, and their seeds lie beyond those that runs train with."""
Part = Literal["train", "id", "ood"]


@dataclass(frozen=True)
class Sequences:
    """Token sequences and which of them can be predicted.

    Attributes
    ----------
    tokens : Tensor [sequence, position], int64
    scored : Tensor [sequence, position], bool
        Where the token can be predicted from those before it; accuracy counts these.
    origin : Tensor [sequence, position], int64
        Position at which the token was first drawn: its own for background.
    """

    tokens: Int[Tensor, "sequence position"]
    scored: Bool[Tensor, "sequence position"]
    origin: Int[Tensor, "sequence position"]

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: torch.device) -> Sequences:
        """The same sequences on a device."""
        return Sequences(self.tokens.to(device), self.scored.to(device), self.origin.to(device))

    def continuations(self) -> Bool[Tensor, "sequence query key"]:
        """Where an induction head attends: at earlier positions with the origin's copy of the *next* token.

        Only at positions whose next token is scored; False elsewhere.
        """
        T = self.tokens.shape[1]
        following = self.origin.roll(-1, dims=1)
        causal = torch.ones(T, T, dtype=torch.bool, device=self.tokens.device).tril()
        aim = self.scored.roll(-1, dims=1).clone()
        aim[:, -1] = False
        return (self.origin[:, None, :] == following[:, :, None]) & causal & aim[:, :, None]


def copying_sequences(task: Task, count: int, generator: torch.Generator, ood: bool = False) -> Sequences:
    """Draw sequences with a repeated block.

    Parameters
    ----------
    task : Task
        Lengths and token laws.
    count : int
        How many sequences.
    generator : torch.Generator
        The source of randomness (on the CPU); the same state gives the same sequences.
    ood : bool
        The out-of-distribution law: `ood_distribution` tokens, blocks of `ood_block`, twice.

    Returns
    -------
    Sequences
        `count` sequences of `task.length` tokens.
    """
    law = token_probabilities(task.ood_distribution if ood else task.distribution, task.vocabulary)
    T, repeats = task.length, 2 if ood else task.repeats
    background = torch.multinomial(law, count * T, replacement=True, generator=generator).view(count, T)
    low, high = (task.ood_block, task.ood_block) if ood else (task.shortest, task.longest)
    block = torch.randint(low, high + 1, (count,), generator=generator)
    times = torch.full((count,), 2)
    if repeats > 2:
        times = torch.randint(2, repeats + 1, (count,), generator=generator)
    starts = _block_starts(T, block, times, repeats, generator)
    return _with_copies(background, block, times, starts)


def _block_starts(
    T: int, block: Int[Tensor, " n"], times: Int[Tensor, " n"], most: int, generator: torch.Generator
) -> Int[Tensor, "n most"]:
    """First positions of the blocks, ascending and at least a block apart; T for blocks a sequence does not have."""
    free = T - block * times
    draws = (torch.rand(len(block), most, generator=generator, dtype=torch.float64) * (free + 1)[:, None]).long()
    place = torch.arange(most)
    unused = place >= times[:, None]
    gaps = draws.masked_fill(unused, T).sort(dim=1).values
    return (gaps + place * block[:, None]).masked_fill(unused, T)


def _with_copies(
    background: Int[Tensor, "n T"], block: Int[Tensor, " n"], times: Int[Tensor, " n"], starts: Int[Tensor, "n most"]
) -> Sequences:
    position = torch.arange(background.shape[1])
    origin = position.expand_as(background).clone()
    scored = torch.zeros_like(background, dtype=torch.bool)
    burn_in = torch.minimum(torch.tensor(BURN_IN), block - 1)[:, None]
    for copy in range(1, starts.shape[1]):
        inside = position - starts[:, copy, None]
        within = (inside >= 0) & (inside < block[:, None])
        origin = torch.where(within, starts[:, :1] + inside, origin)
        scored |= within & (inside >= burn_in)
    return Sequences(background.gather(1, origin), scored, origin)


def held_out_pairs(p: int) -> Bool[Tensor, "p p"]:
    """Pairs that training never shows, the same for every run: a fifth of them, at least one and never all."""
    count = min(max(int(HELD_OUT_SHARE * p * p), 1), p * p - 1)
    order = torch.randperm(p * p, generator=torch.Generator().manual_seed(HELD_OUT_SEED))
    out = torch.zeros(p * p, dtype=torch.bool)
    out[order[:count]] = True
    return out.view(p, p)


def addition_sequences(task: Task, count: int, generator: torch.Generator, ood: bool = False) -> Sequences:
    """Draw rows of sums; the sums' results are the scored tokens.

    Parameters
    ----------
    task : Task
        `vocabulary` is p + 1; `length` positions hold `length // 4` whole sums, the rest repeats the equals sign.
    count, generator, ood
        How many sequences, the source of randomness, and whether to draw the held-out pairs.

    Returns
    -------
    Sequences
        `origin` is each position's own: nothing here is a copy.
    """
    p = task.vocabulary - 1
    held_out = held_out_pairs(p)
    pairs = (held_out if ood else ~held_out).nonzero()
    sums = task.length // SUM
    drawn = pairs[torch.randint(len(pairs), (count * sums,), generator=generator)].view(count, sums, 2)
    tokens = torch.full((count, task.length), p)
    scored = torch.zeros(count, task.length, dtype=torch.bool)
    for place, values in enumerate((drawn[..., 0], drawn[..., 1], None, drawn.sum(-1) % p)):
        if values is not None:
            tokens[:, place : sums * SUM : SUM] = values
    scored[:, SUM - 1 : sums * SUM : SUM] = True
    return Sequences(tokens, scored, torch.arange(task.length).expand(count, -1).clone())


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
