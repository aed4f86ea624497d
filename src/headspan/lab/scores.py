"""How well a model copies, and which of its heads do it.

Accuracy counts the tokens that can be foretold (`Sequences.scored`). Two attention scores: from every position but the
first to the one before (previous token), and from positions inside a later block to wherever the next token was seen
before (induction).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from headspan.lab.model import LabModel, Seen
from headspan.lab.sequences import Sequences


def next_token_loss(logits: Float[Tensor, "n T token"], sequences: Sequences) -> Float[Tensor, ""]:
    """Mean cross-entropy of the next token over all positions, in nats; log(vocabulary) for a uniform guess."""
    return cross_entropy(logits[:, :-1].flatten(0, 1), sequences.tokens[:, 1:].flatten())


def accuracy(logits: Float[Tensor, "n T token"], sequences: Sequences) -> float:
    """Share of right guesses among the scored tokens, in [0, 1]; 1/vocabulary by chance for uniform tokens.

    NaN where no token is scored.
    """
    right = logits[:, :-1].argmax(-1) == sequences.tokens[:, 1:]
    return float(right[sequences.scored[:, 1:]].double().mean())


def scored_loss(logits: Float[Tensor, "n T token"], sequences: Sequences) -> float:
    """Mean cross-entropy over the scored tokens alone, in nats."""
    scored = sequences.scored[:, 1:]
    return float(cross_entropy(logits[:, :-1][scored].double(), sequences.tokens[:, 1:][scored]))


def attention_scores(seen: Seen, sequences: Sequences) -> dict[str, Float[Tensor, "layer head"]]:
    """Previous-token and induction score of every head.

    Returns
    -------
    dict
        `previous_token` and `induction`, [layer, head] in [0, 1]; for a head that looks at all positions alike the mean
        of 1/(i+1) over the positions counted (`attention_chance`). Induction is NaN for a task without copies.
    """
    previous = seen.patterns.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=(1, 3))
    aim = sequences.continuations()
    return {"previous_token": previous.double(), "induction": _mean_on(seen.patterns, aim)}


def _mean_on(patterns: Float[Tensor, "layer n head T T"], aim: Bool[Tensor, "n T T"]) -> Float[Tensor, "layer head"]:
    """Attention on the aims, summed over keys, mean over the positions that have an aim."""
    counted = aim.any(-1)
    mass = (patterns * aim[None, :, None]).sum(-1)
    total = (mass * counted[None, :, None]).sum(dim=(1, 3)).double()
    return total / counted.sum() if bool(counted.any()) else torch.full_like(total, torch.nan)


def attention_chance(sequences: Sequences) -> dict[str, float]:
    """The two attention scores of a head that spreads itself evenly over all earlier positions and its own."""
    T = sequences.tokens.shape[1]
    even = 1.0 / torch.arange(1, T + 1, dtype=torch.float64)
    aim = sequences.continuations()
    counted = aim.any(-1)
    mass = (aim.sum(-1) * even)[counted]
    return {"previous_token": float(even[1:].mean()), "induction": float(mass.mean()) if len(mass) else float("nan")}


@torch.no_grad()
def measured(model: LabModel, sequences: Sequences) -> dict[str, float]:
    """Loss over all positions and accuracy on the scored ones."""
    logits = model(sequences.tokens)
    return {"loss": float(next_token_loss(logits, sequences)), "accuracy": accuracy(logits, sequences)}
