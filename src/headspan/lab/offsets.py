"""Does the first layer's attention look at positions only? Two answers.

1. The share of its logits' variance that the offset (query position less key position) explains by itself. Softmax does
   not see what is added to a whole row, so each row's mean over its causal keys is taken out first.
2. Its previous-token score when queries and keys each read a shuffled sequence instead of the one at hand: a head that
   ignores tokens keeps it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lab.model import LabModel
from headspan.lab.sequences import Sequences


def offset_share(scores: Float[Tensor, "sequence query key"]) -> tuple[float, float]:
    """Share of the row-centred causal logits' variance that offsets explain.

    Parameters
    ----------
    scores
        [sequence, position, position], logits of one head.

    Returns
    -------
    tuple
        The share, in [0, 1], and its value under chance: one mean per offset fits independent noise to the number
        of offsets over the number of logits. NaN for logits that do not vary.
    """
    T = scores.shape[-1]
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    counts = causal.sum(-1)
    rows = scores.double().masked_fill(~causal, 0.0)
    centred = (rows - rows.sum(-1, keepdim=True) / counts[:, None]).masked_fill(~causal, 0.0)
    offset = (torch.arange(T)[:, None] - torch.arange(T)).clamp(min=0)
    total = torch.zeros(T, dtype=torch.float64).scatter_add_(0, offset[causal], centred.sum(0)[causal])
    number = torch.bincount(offset[causal], minlength=T).double() * len(scores)
    explained, whole = float((total.square() / number).sum()), float(centred.square().sum())
    return (explained / whole if whole > 0 else float("nan")), T / float(number.sum())


@torch.no_grad()
def layer_offset_shares(model: LabModel, test: Sequences, layer: int = 0) -> list[tuple[float, float]]:
    """For each head of a layer, the share that offsets explain, and its value under chance."""
    scores = model.seen(test.tokens).scores[layer]
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
    T = test.tokens.shape[1]
    layer, x = model.stack[0], model.embedded(test.tokens)
    turn = model.turn(T, x)
    read = []
    for _ in range(2):
        order = torch.argsort(torch.rand(test.tokens.shape, generator=generator), dim=1).to(test.tokens.device)
        read.append(layer.input_layernorm(model.embedded(test.tokens.gather(1, order))))
    q, _, _ = layer.self_attn.roles(read[0], turn)
    _, k, _ = layer.self_attn.roles(read[1], turn)
    scores = q @ k.mT * model.shape.d_head**-0.5
    future = torch.ones(T, T, dtype=torch.bool, device=scores.device).triu(1)
    pattern = scores.masked_fill(future, -torch.inf).softmax(-1)
    score: Tensor = pattern.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=(0, 2)).double().cpu()
    return score
