r"""Attention layers in a row on a sequence, without a model: how fast tokens become indistinguishable.

One layer, in row vectors, for tokens X [n, d]:

    A = softmax(X W_Q (X W_K)^T / scale),   X' = beta A X W_V + (1 - beta) X,   then LayerNorm where asked for,

with a sum over heads of A X W_V where there are several.

A is a stochastic matrix, so without skip (beta = 1) it pulls tokens together; W_V, and A following X, may pull them
apart. With random weights of Xavier's scale tokens collapse doubly fast. Small weights alone do not force
that: two tokens x and -x in one dimension, with all three weights 2, move by x' = 2 x tanh(4 x^2), and drift apart
whenever |x| > sqrt(atanh(1/2) / 4) = 0.3706.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.rectified import layer_norm
from headspan.errors import ShapeError
from headspan.subspaces.precision import require_finite


class AttentionWeights(NamedTuple):
    """One layer: W_Q and W_K are [d, k], W_V is [d, d], values already written back (W_V W_O of a model's head).

    With a leading axis of heads, [head, d, k] and [head, d, d], what the heads write is added up.
    """

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor


def attention_pattern(
    X: Float[Tensor, "*#batch n d"],
    W_Q: Float[Tensor, "*#batch d k"],
    W_K: Float[Tensor, "*#batch d k"],
    scale: float | None = None,
    causal: bool = False,
) -> Float[Tensor, "*#batch n n"]:
    """softmax(X W_Q W_K^T X^T / scale), rows summing to 1; 1 / n everywhere by chance of small weights.

    `scale` is sqrt(k) unless given; `causal` hides later tokens.
    """
    require_finite(X, "tokens")
    logits = (X @ W_Q) @ (X @ W_K).mT / (math.sqrt(W_Q.shape[-1]) if scale is None else scale)
    require_finite(logits, "attention logits")
    if causal:
        hidden = torch.ones(X.shape[-2], X.shape[-2], dtype=torch.bool).triu(1)
        logits = logits.masked_fill(hidden, -math.inf)
    return torch.softmax(logits, -1)


def attention_layer(
    X: Float[Tensor, "*batch n d"],
    weights: AttentionWeights,
    beta: float = 1.0,
    norm: bool = False,
    scale: float | None = None,
    causal: bool = False,
) -> tuple[Float[Tensor, "*batch n d"], Float[Tensor, "*heads n n"]]:
    """The tokens after one layer, beta of attention and 1 - beta of skip, and the pattern [..., (head,) n, n]."""
    if not 0 <= beta <= 1:
        raise ShapeError(f"the share of attention beside the skip needs to be in [0, 1], found {beta:g}")
    d = X.shape[-1]
    shapes = [tuple(w.shape) for w in weights]
    if shapes[0] != shapes[1] or shapes[0][-2] != d or shapes[2] != (*shapes[0][:-2], d, d) or len(shapes[0]) > 3:
        raise ShapeError(
            f"tokens of width {d} need W_Q and W_K of ([head,] {d}, k) and W_V of ([head,] {d}, {d}), found {shapes}"
        )
    several = weights.W_Q.ndim == 3
    tokens = X[..., None, :, :] if several else X
    pattern = attention_pattern(tokens, weights.W_Q, weights.W_K, scale, causal)
    moved = pattern @ (tokens @ weights.W_V)
    after = beta * (moved.sum(-3) if several else moved) + (1 - beta) * X
    require_finite(after, "tokens after attention")
    return (layer_norm(after) if norm else after), pattern


def random_layers(
    d: int,
    depth: int,
    generator: torch.Generator,
    k: int | None = None,
    norms: tuple[float | None, float | None, float | None] = (None, None, None),
) -> list[AttentionWeights]:
    """Layers of independent normal weights at Xavier's scale, in float64.

    Parameters
    ----------
    d, depth
        Width of tokens, number of layers.
    k
        Rank of W_Q W_K^T; d unless given.
    norms
        Operator norms to give W_Q, W_K and W_V instead of their own (about 2 for square matrices).
    """
    k = d if k is None else k
    if min(d, k) < 1 or depth < 0:
        raise ShapeError(f"random layers need sides of at least 1 and a depth of at least 0, found {d}, {k}, {depth}")

    def drawn(columns: int, size: float | None) -> Tensor:
        W = torch.randn(d, columns, generator=generator, dtype=torch.float64) * math.sqrt(2 / (d + columns))
        return W if size is None else W * (size / torch.linalg.matrix_norm(W, 2))

    return [AttentionWeights(drawn(k, norms[0]), drawn(k, norms[1]), drawn(d, norms[2])) for _ in range(depth)]


def layers_applied(
    X: Float[Tensor, "*batch n d"],
    layers: Sequence[AttentionWeights],
    beta: float = 1.0,
    norm: bool = False,
    scale: float | None = None,
    causal: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """Tokens at every depth, before the first layer and after each, and the attention patterns between."""
    states, patterns = [X], []
    for weights in layers:
        X, pattern = attention_layer(X, weights, beta, norm, scale, causal)
        states.append(X)
        patterns.append(pattern)
    return states, patterns


def opposite_step(
    x: Float[Tensor, "*shape"], q: float = 2.0, k: float = 2.0, v: float = 2.0
) -> Float[Tensor, "*shape"]:
    """Where attention takes the pair of scalar tokens x and -x: to v x tanh(q k x^2) and its opposite.

    With weights 2 this is the counterexample to collapse under operator norms of 2 (thesis 7.2.3): the gap between the
    tokens doubles with every layer once |x| is above `opposite_threshold`.
    """
    require_finite(x, "tokens")
    return v * x * torch.tanh(q * k * x.square())


def opposite_threshold(q: float = 2.0, k: float = 2.0, v: float = 2.0) -> float:
    """The |x| below which x and -x collapse and above which they part: sqrt(atanh(1 / v) / (q k)), 0.3706 for 2, 2, 2.

    Infinite where v <= 1: then they always collapse.
    """
    if q * k <= 0:
        raise ShapeError(f"the threshold needs query and key weights of one sign, found {q:g} and {k:g}")
    return math.sqrt(math.atanh(1 / v) / (q * k)) if v > 1 else math.inf
