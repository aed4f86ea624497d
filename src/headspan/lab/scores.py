"""How well a model copies, which of its heads do it, and whether they look at tokens.

Accuracy counts the tokens that can be predicted (`Sequences.scored`), also in sequences longer than those trained on.
Two attention scores: from every position but the first to the one before (previous token), and from positions inside a
later block to wherever the next token occurred before (induction).

Does the first layer's attention look at positions only? Two answers:

1. The share of its logits' variance that the offset (query position less key position) explains by itself. Softmax does
   not see what is added to a whole row, so each row's mean over its causal keys is taken out first.
2. Its previous-token score when queries and keys each read a shuffled sequence instead of the one at hand: a head that
   ignores tokens keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from headspan.errors import ArgumentError
from headspan.lab.model import LabModel, Trace
from headspan.lab.sequences import Sequences, copying_sequences
from headspan.lab.task import Task

LENGTHS_SEED = 3_000_000


def next_token_loss(logits: Float[Tensor, "n T token"], sequences: Sequences) -> Float[Tensor, ""]:
    """Mean cross-entropy of the next token over all positions, in nats; log(vocabulary) for a uniform guess."""
    return cross_entropy(logits[:, :-1].flatten(0, 1), sequences.tokens[:, 1:].flatten())


def accuracy(logits: Float[Tensor, "n T token"], sequences: Sequences) -> float:
    """Share of right guesses among the scored tokens, in [0, 1]; 1/vocabulary under the null for uniform tokens.

    NaN where no token is scored.
    """
    right = logits[:, :-1].argmax(-1) == sequences.tokens[:, 1:]
    return float(right[sequences.scored[:, 1:]].double().mean())


def attention_scores(trace: Trace, sequences: Sequences) -> dict[str, Float[Tensor, "layer head"]]:
    """Previous-token and induction score of every head.

    Returns
    -------
    dict
        `previous_token` and `induction`, [layer, head] in [0, 1]; for a head that looks at all positions alike the mean
        of 1/(i+1) over the positions counted (`attention_null`). Induction is NaN for a task without copies.
    """
    previous = trace.patterns.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=(1, 3))
    aim = sequences.continuations()
    return {"previous_token": previous.double(), "induction": _mean_on(trace.patterns, aim)}


def _mean_on(patterns: Float[Tensor, "layer n head T T"], aim: Bool[Tensor, "n T T"]) -> Float[Tensor, "layer head"]:
    """Attention on the aims, summed over keys, mean over the positions that have an aim."""
    counted = aim.any(-1)
    mass = (patterns * aim[None, :, None]).sum(-1)
    total = (mass * counted[None, :, None]).sum(dim=(1, 3)).double()
    return total / counted.sum() if bool(counted.any()) else torch.full_like(total, torch.nan)


def attention_null(sequences: Sequences) -> dict[str, float]:
    """The two attention scores of a head that spreads itself evenly over all earlier positions and its own."""
    T = sequences.tokens.shape[1]
    even = 1.0 / torch.arange(1, T + 1, dtype=torch.float64)
    aim = sequences.continuations()
    counted = aim.any(-1)
    mass = (aim.sum(-1) * even)[counted]
    return {"previous_token": float(even[1:].mean()), "induction": float(mass.mean()) if len(mass) else float("nan")}


@torch.no_grad()
def loss_and_accuracy(model: LabModel, sequences: Sequences) -> dict[str, float]:
    """Loss over all positions and accuracy on the scored ones."""
    logits = model(sequences.tokens)
    return {"loss": float(next_token_loss(logits, sequences)), "accuracy": accuracy(logits, sequences)}


def length_generalization(
    model: LabModel, task: Task, lengths: Sequence[int], count: int = 64, seed: int = LENGTHS_SEED
) -> dict[int, float]:
    """OOD accuracy by sequence length, blocks as long as those of the OOD test.

    Returns
    -------
    dict
        In [0, 1], 1/vocabulary under the null; NaN where a learned position table is too short to say anything.
    """
    if task.kind != "copying":
        raise ArgumentError(f"longer sequences are drawn for the task copying, not for {task.kind!r}")
    found = {}
    for length in lengths:
        if length < 2 * task.ood_block:
            raise ArgumentError(f"lengths need to be at least {2 * task.ood_block} (two blocks), found {length}")
        if model.shape.positions == "learned" and length > model.shape.length:
            found[length] = float("nan")
            continue
        longer = replace(task, length=length)
        sequences = copying_sequences(longer, count, torch.Generator().manual_seed(seed), ood=True)
        found[length] = loss_and_accuracy(model, sequences.to(next(model.parameters()).device))["accuracy"]
    return found


def offset_share(scores: Float[Tensor, "sequence query key"]) -> tuple[float, float]:
    """Share of the row-centered causal logits' variance that offsets explain.

    Parameters
    ----------
    scores
        [sequence, position, position], logits of one head.

    Returns
    -------
    tuple
        The share, in [0, 1], and its value under the null: one mean per offset fits independent noise to the number
        of offsets over the number of logits. NaN for logits that do not vary.
    """
    T = scores.shape[-1]
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    counts = causal.sum(-1)
    rows = scores.double().masked_fill(~causal, 0.0)
    centered = (rows - rows.sum(-1, keepdim=True) / counts[:, None]).masked_fill(~causal, 0.0)
    offset = (torch.arange(T)[:, None] - torch.arange(T)).clamp(min=0)
    total = torch.zeros(T, dtype=torch.float64).scatter_add_(0, offset[causal], centered.sum(0)[causal])
    number = torch.bincount(offset[causal], minlength=T).double() * len(scores)
    explained, whole = float((total.square() / number).sum()), float(centered.square().sum())
    return (explained / whole if whole > 0 else float("nan")), T / float(number.sum())


@torch.no_grad()
def layer_offset_shares(model: LabModel, test: Sequences, layer: int = 0) -> list[tuple[float, float]]:
    """For each head of a layer, the share that offsets explain, and its value under the null."""
    scores = model.trace(test.tokens).scores[layer]
    return [offset_share(scores[:, head].cpu()) for head in range(scores.shape[1])]


@torch.no_grad()
def shuffled_previous_token(model: LabModel, test: Sequences, generator: torch.Generator) -> Float[Tensor, " head"]:
    """Previous-token score of layer 0 with tokens shuffled, separately, in what queries and what keys read.

    Returns
    -------
    Tensor
        [head], in [0, 1]; the score itself for a head that ignores tokens, about that of even attention for one that
        needs them.
    """
    layer, x = model.stack[0], model.embed(test.tokens)
    rotation = model.rotation(test.tokens.shape[1], x)
    read = []
    for _ in range(2):
        order = torch.argsort(torch.rand(test.tokens.shape, generator=generator), dim=1).to(test.tokens.device)
        read.append(layer.input_layernorm(model.embed(test.tokens.gather(1, order))))
    q, _, _ = layer.self_attn.roles(read[0], rotation)
    _, k, _ = layer.self_attn.roles(read[1], rotation)
    _, pattern = layer.self_attn.pattern(q, k)
    score: Tensor = pattern.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=(0, 2)).double().cpu()
    return score
