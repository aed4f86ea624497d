"""The task of the demo model, to copy random segments that repeat, and how well its heads do it.

Algorithm, per sequence:

1. draw a token distribution over the 62 letters and digits (one of three kinds, see `token_distributions`);
2. draw a period, uniformly from the shortest to the longest;
3. draw a segment of that many tokens, independently, from the distribution;
4. repeat the segment until the sequence is full.

From the second occurrence of the segment on, every token can be predicted by copying: find where the current
token stood one period ago, and repeat what came after it. Token frequencies tell little, since every sequence
has its own.

For each evaluation seed: draw such sequences, run the model once with eager attention, and average

- the accuracy of the next-token guess, over the tokens that repeat;
- the attention each head pays, from those positions, to the position before (a previous-token head), and to
  the position right after the current token's place one period ago (an induction head).

A score is the mean over seeds; its standard error is that of the mean over seeds. The chance level of attention is a
head that looks at every position up to its own alike: the mean of 1 / (i + 1) over the same positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import LlamaForCausalLM

Distribution = Literal["training", "uniform", "zipf"]

DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
N_LETTERS = 62
LENGTH = 64
SHORTEST_PERIOD, LONGEST_PERIOD = 8, 32
# With such logits the effective vocabulary (exp of entropy) is mostly between 13 and 57 of the 62 tokens.
NARROWEST_SPREAD, WIDEST_SPREAD = 0.5, 1.5
EVALUATION_SEEDS: tuple[int, ...] = tuple(range(1_000, 1_010))
SEQUENCES_PER_SEED = 64


@dataclass(frozen=True)
class TiledSequences:
    """Sequences that repeat themselves, and the period of each.

    Attributes
    ----------
    tokens : Tensor [sequence, position], int64
        Token ids, all of them letters or digits.
    period : Tensor [sequence], int64
        `tokens[s, i] == tokens[s, i - period[s]]` for every `i >= period[s]`.
    """

    tokens: Int[Tensor, "sequence position"]
    period: Int[Tensor, " sequence"]

    def repeated(self) -> Bool[Tensor, "sequence position"]:
        """Where a token is one that stood a period ago: the positions an induction head can serve."""
        position = torch.arange(self.tokens.shape[1])
        return position >= self.period[:, None]


def token_distributions(
    count: int,
    kind: Distribution,
    generator: torch.Generator,
) -> Float[Tensor, "sequence token"]:
    """One token distribution per sequence.

    `training`: softmax of normal logits, their spread drawn from [0.5, 1.5]. `uniform`: all tokens alike.
    `zipf`: probability proportional to 1 / rank, ranks shuffled per sequence. Training shows only the first.

    Parameters
    ----------
    count : int
        How many sequences.
    kind : {"training", "uniform", "zipf"}
        Which family the distributions come from.
    generator : torch.Generator
        The source of randomness.

    Returns
    -------
    Tensor [sequence, token], float32
        Rows in [0, 1] that sum to one; 1/62 everywhere for `uniform`.
    """
    if kind == "uniform":
        return torch.full((count, N_LETTERS), 1.0 / N_LETTERS)
    noise = torch.randn(count, N_LETTERS, generator=generator)
    if kind == "zipf":
        rank = noise.argsort(dim=-1).argsort(dim=-1) + 1
        return (1.0 / rank) / (1.0 / rank).sum(dim=-1, keepdim=True)
    spread = torch.rand(count, 1, generator=generator) * (WIDEST_SPREAD - NARROWEST_SPREAD) + NARROWEST_SPREAD
    return torch.softmax(noise * spread, dim=-1)


def tiled_sequences(
    count: int,
    generator: torch.Generator,
    kind: Distribution = "training",
) -> TiledSequences:
    """Draw sequences of 64 tokens, each a random segment repeated with a period between 8 and 32.

    Parameters
    ----------
    count : int
        How many sequences.
    generator : torch.Generator
        The source of randomness; the same state gives the same sequences.
    kind : {"training", "uniform", "zipf"}
        Which family of token distributions the segments are drawn from.

    Returns
    -------
    TiledSequences
        `count` sequences with their periods. Every one holds its segment at least twice.
    """
    distribution = token_distributions(count, kind, generator)
    segment = torch.multinomial(distribution, LONGEST_PERIOD, replacement=True, generator=generator)
    period = torch.randint(SHORTEST_PERIOD, LONGEST_PERIOD + 1, (count,), generator=generator)
    place = torch.arange(LENGTH) % period[:, None]
    return TiledSequences(tokens=segment.gather(1, place), period=period)


@dataclass(frozen=True)
class Score:
    """A measured mean, its value under chance, and its standard error over seeds. All lie in [0, 1]."""

    value: float
    chance: float
    standard_error: float


@dataclass(frozen=True)
class HeadScores:
    """The two attention scores of every head, as `[layer][head]`."""

    previous_token: list[list[Score]]
    induction: list[list[Score]]


@dataclass(frozen=True)
class _Pass:
    """What one evaluation seed gives: accuracy, and per head the attention mass and its chance value."""

    accuracy: float
    previous_token: Float[Tensor, "layer head"]
    induction: Float[Tensor, "layer head"]
    chance: float


def open_demo(folder: Path) -> LlamaForCausalLM:
    """Load a demo checkpoint for measuring: weights as stored, float32 arithmetic, eager attention."""
    return LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )


def copying_accuracy(
    model: LlamaForCausalLM,
    kind: Distribution,
    seeds: Sequence[int] = EVALUATION_SEEDS,
) -> Score:
    """Share of repeated tokens that the model guesses right.

    Parameters
    ----------
    model : LlamaForCausalLM
        A model with eager attention.
    kind : {"training", "uniform", "zipf"}
        The token distributions to measure on.
    seeds : sequence of int
        One draw of sequences each.

    Returns
    -------
    Score
        In [0, 1]; a guess among the 62 tokens is right with chance 1/62.
    """
    accuracies = torch.tensor([_one_pass(model, kind, seed).accuracy for seed in seeds])
    return _score(accuracies, chance=1.0 / N_LETTERS)


def head_scores(
    model: LlamaForCausalLM, kind: Distribution = "uniform", seeds: Sequence[int] = EVALUATION_SEEDS
) -> HeadScores:
    """Previous-token and induction score of every head.

    Parameters
    ----------
    model : LlamaForCausalLM
        A model with eager attention.
    kind : {"training", "uniform", "zipf"}
        The token distributions to measure on.
    seeds : sequence of int
        One draw of sequences each.

    Returns
    -------
    HeadScores
        Each score in [0, 1]; chance is a head with uniform causal attention, about 0.03 here.
    """
    passes = [_one_pass(model, kind, seed) for seed in seeds]
    chance = sum(one.chance for one in passes) / len(passes)
    return HeadScores(
        previous_token=_score_table(torch.stack([one.previous_token for one in passes]), chance),
        induction=_score_table(torch.stack([one.induction for one in passes]), chance),
    )


@torch.no_grad()
def _one_pass(model: LlamaForCausalLM, kind: Distribution, seed: int) -> _Pass:
    sequences = tiled_sequences(SEQUENCES_PER_SEED, torch.Generator().manual_seed(seed), kind)
    output = model(input_ids=sequences.tokens, output_attentions=True, use_cache=False)
    attention = torch.stack(output.attentions, dim=1)
    repeated = sequences.repeated()
    position = torch.arange(LENGTH).expand_as(sequences.tokens)
    after_last_occurrence = (position - sequences.period[:, None] + 1).clamp(min=0)
    return _Pass(
        accuracy=_accuracy(output.logits, sequences),
        previous_token=_mean_attention_to(attention, (position - 1).clamp(min=0), repeated),
        induction=_mean_attention_to(attention, after_last_occurrence, repeated),
        chance=float((1.0 / (position[repeated] + 1)).mean()),
    )


def _accuracy(logits: Float[Tensor, "sequence position vocab"], sequences: TiledSequences) -> float:
    """Share of right guesses, from every position whose current and next token both repeat."""
    right = logits[:, :-1].argmax(dim=-1) == sequences.tokens[:, 1:]
    return float(right[sequences.repeated()[:, :-1]].float().mean())


def _mean_attention_to(
    attention: Float[Tensor, "sequence layer head position position"],
    target: Int[Tensor, "sequence position"],
    counted: Bool[Tensor, "sequence position"],
) -> Float[Tensor, "layer head"]:
    """Mean attention from every counted position to its target."""
    index = target[:, None, None, :, None].expand(*attention.shape[:-1], 1)
    on_target = attention.gather(-1, index).squeeze(-1)
    weight = counted[:, None, None, :].to(on_target.dtype)
    return (on_target * weight).sum(dim=(0, -1)) / counted.sum()


def _score(values: Float[Tensor, " seed"], chance: float) -> Score:
    wide = values.double()
    error = wide.std() / len(wide) ** 0.5
    return Score(value=float(wide.mean()), chance=chance, standard_error=float(error))


def _score_table(values: Float[Tensor, "seed layer head"], chance: float) -> list[list[Score]]:
    return [[_score(head, chance) for head in layer] for layer in values.permute(1, 2, 0)]
