r"""Attention without a model: patterns, layers in a row on a sequence, and how many dimensions a pattern has.

One layer, in row vectors, for tokens X [n, d]:

    A = softmax(X W_Q (X W_K)^T / scale),   X' = beta A X W_V + (1 - beta) X,   then LayerNorm where asked for,

with a sum over heads of A X W_V where there are several.

A is a stochastic matrix, so without skip (beta = 1) it pulls tokens together; W_V, and A following X, may pull them
apart. With random weights of Xavier's scale tokens collapse doubly fast. Small weights alone do not force
that: two tokens x and -x in one dimension, with all three weights 2, move by x' = 2 x tanh(4 x^2), and drift apart
whenever |x| > sqrt(atanh(1/2) / 4) = 0.3706.

A pattern's numerical rank is counted three ways: singular values above rounding, and the fewest that hold a share of
the energy sum s^2. Random logits of full width give full numerical rank at any length; the logarithm of the length, as
argued from random projections, is no bound on it.

With tokens that are Gaussian and weights held fixed, what attention puts out is Gaussian with covariance (A x I) S (A x
I)^T. Real weights follow the tokens; `data_dependence` samples both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.rectified import layer_norm
from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.rank import require_finite


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
    """softmax(X W_Q W_K^T X^T / scale), rows summing to 1; 1 / n everywhere for small weights.

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
        raise ArgumentError(f"the share of attention beside the skip needs to be in [0, 1], found {beta:g}")
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
        raise ArgumentError(
            f"random layers need sides of at least 1 and a depth of at least 0, found {d}, {k}, {depth}"
        )

    def draw(columns: int, size: float | None) -> Tensor:
        W = torch.randn(d, columns, generator=generator, dtype=torch.float64) * math.sqrt(2 / (d + columns))
        return W if size is None else W * (size / torch.linalg.matrix_norm(W, 2))

    return [AttentionWeights(draw(k, norms[0]), draw(k, norms[1]), draw(d, norms[2])) for _ in range(depth)]


def layer_states(
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
        raise ArgumentError(f"the threshold needs query and key weights of one sign, found {q:g} and {k:g}")
    return math.sqrt(math.atanh(1 / v) / (q * k)) if v > 1 else math.inf


def _stochastic(A: Tensor) -> Tensor:
    require_finite(A, "an attention pattern")
    A = A.double()
    off = float((A.sum(-1) - 1).abs().max())
    if off > 1e-5 or float(A.min()) < 0:
        raise ArgumentError(
            f"an attention pattern needs rows of probabilities that sum to 1, found sums off by {off:.3g}, a least "
            f"entry of {float(A.min()):.3g}; apply softmax first"
        )
    return A


def energy_rank(A: Float[Tensor, "*batch m n"], share: float) -> Tensor:
    """The fewest singular values that hold a share of sum s^2; an integer in [1, min(m, n)], 0 for a zero matrix."""
    if not 0 < share <= 1:
        raise ArgumentError(f"a share of energy needs to be in (0, 1], found {share:g}")
    require_finite(A, "a matrix")
    energy = torch.linalg.svdvals(A.double()).square()
    held = energy.cumsum(-1)
    whole = held[..., -1:]
    # Rounding in the running sum must not ask for one value more than there are.
    short = held < share * whole * (1 - 1e-14)
    return torch.where(whole[..., 0] > 0, short.sum(-1) + 1, 0)


@dataclass(frozen=True)
class PatternRank:
    """Dimensions of attention patterns of n tokens, [...] each: `numerical` counts s > n eps s_1."""

    rank90: Tensor
    rank99: Tensor
    numerical: Tensor
    log_n: float


def pattern_rank(A: Float[Tensor, "*batch n n"]) -> PatternRank:
    """Ranks of attention patterns, beside the logarithm of their length."""
    A = _stochastic(A)
    values, n = torch.linalg.svdvals(A), A.shape[-1]
    return PatternRank(
        rank90=energy_rank(A, 0.9),
        rank99=energy_rank(A, 0.99),
        numerical=(values > n * torch.finfo(torch.float64).eps * values[..., :1]).sum(-1),
        log_n=math.log(n),
    )


def random_pattern(n: int, d: int, generator: torch.Generator) -> Float[Tensor, "n n"]:
    """Attention of n tokens with independent standard normal queries and keys of width d: logits of variance 1."""
    if min(n, d) < 1:
        raise ArgumentError(f"a pattern needs at least 1 token and 1 dimension, found {n} and {d}")
    Q, K = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    return torch.softmax(Q @ K.mT / math.sqrt(d), -1)


@dataclass(frozen=True)
class DataDependence:
    """Covariance [n d, n d] of attention's output when weights follow the data, and when they stay as at the mean."""

    following: Tensor
    fixed: Tensor

    @property
    def difference(self) -> float:
        """|following - fixed| / |following|, Frobenius; 0 where weights do not depend on the data."""
        gap = torch.linalg.matrix_norm(self.following - self.fixed)
        return float(gap / torch.linalg.matrix_norm(self.following))


def data_dependence(
    mean: Float[Tensor, "n d"],
    covariance: Float[Tensor, "n*d n*d"],
    W_QK: Float[Tensor, "d d"],
    draws: int,
    generator: torch.Generator,
    scale: float = 1.0,
) -> DataDependence:
    """Covariance of softmax(X W_QK X^T / scale) X for Gaussian X, sampled, beside that of weights fixed at the mean.

    The fixed one is exact, (A x I) S (A x I)^T with A the pattern of the mean sequence.
    """
    n, d = mean.shape
    if draws < 2:
        raise ArgumentError(f"a covariance needs at least 2 draws, found {draws}")
    mean, covariance = mean.double(), covariance.double()
    require_finite(covariance, "a covariance")
    values, vectors = torch.linalg.eigh((covariance + covariance.mT) / 2)
    if float(values[0]) < -1e-9 * float(values[-1].abs()):
        raise ArgumentError(f"a covariance needs eigenvalues of at least 0, found {float(values[0]):.3g}")
    root = vectors * values.clamp(min=0).sqrt()
    X = mean + (torch.randn(draws, n * d, generator=generator, dtype=torch.float64) @ root.mT).reshape(draws, n, d)
    unit = torch.eye(d, dtype=torch.float64)
    out = attention_pattern(X, W_QK.double(), unit, scale) @ X
    mixed = torch.kron(attention_pattern(mean, W_QK.double(), unit, scale), unit)
    return DataDependence(following=torch.cov(out.flatten(1).mT), fixed=mixed @ covariance @ mixed.mT)
