r"""Pairs of a query and a key whose logit is looked at, and their moments.

- self: a token with itself;
- neighbour: with the token one before it;
- unrelated: with a token of another sequence. In a rotary model these are taken at several distances, and their logits
  together are a mixture over distances.

A Gaussian picture of the stream that a layer reads gives, through the linear maps W_Q and W_K, jointly Gaussian queries
and keys. Their moments are the images of the stream's, and equal those of sampled queries and keys; so they are fitted
there, in d_head dimensions. This also serves models that norm queries and keys, where the picture is one of the normed
ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

SELF, NEIGHBOUR, UNRELATED = "self", "neighbour", "unrelated"
PAIRS = (SELF, NEIGHBOUR, UNRELATED)
DISTANCES = (2, 4, 8, 16, 32)
"""Distances at which unrelated pairs of a rotary model are taken, as far as the sequences reach."""


@dataclass(frozen=True)
class QueriesAndKeys:
    """Queries and keys of one layer before positions turn them, keys repeated so that every head has its own."""

    q: Float[Tensor, "sequence head position d_head"]
    k: Float[Tensor, "sequence head position d_head"]

    def part(self, sequences: slice) -> QueriesAndKeys:
        return QueriesAndKeys(self.q[sequences], self.k[sequences])

    def pairs(self, kind: str) -> tuple[Float[Tensor, "head n d_head"], Float[Tensor, "head n d_head"]]:
        """The queries and keys of all pairs of a kind."""
        q, k = self.q, self.k
        if kind == NEIGHBOUR:
            q, k = q[:, :, 1:], k[:, :, :-1]
        elif kind == UNRELATED:
            # The next sequence, and half a sequence further on: neither words nor places go together.
            k = k.roll(1, dims=0).roll(k.shape[2] // 2, dims=2)
        return tuple(side.movedim(1, 0).flatten(1, 2) for side in (q, k))  # type: ignore[return-value]


def distances(kind: str, rotary: bool, length: int) -> tuple[int, ...]:
    """Positions from key to query at which the logits of a kind of pair are taken."""
    if kind == SELF or not rotary:
        return (0,)
    if kind == NEIGHBOUR:
        return (1,)
    return tuple(delta for delta in DISTANCES if delta < length)


@dataclass(frozen=True)
class PairMoments:
    """Means, covariances and cross-covariance of queries and keys, per head; the last is None for unrelated pairs."""

    mean_q: Float[Tensor, "head d_head"]
    S_q: Float[Tensor, "head d_head d_head"]
    mean_k: Float[Tensor, "head d_head"]
    S_k: Float[Tensor, "head d_head d_head"]
    S_qk: Float[Tensor, "head d_head d_head"] | None


def fitted(sample: QueriesAndKeys, kind: str) -> PairMoments:
    """The moments of a kind of pair. Unrelated pairs are taken to be independent: that is what the word says."""
    q, k = sample.pairs(kind)
    mean_q, mean_k = q.mean(1), k.mean(1)
    q, k = q - mean_q[:, None], k - mean_k[:, None]
    n = q.shape[1] - 1
    S_qk = None if kind == UNRELATED else q.mT @ k / n
    return PairMoments(mean_q, q.mT @ q / n, mean_k, k.mT @ k / n, S_qk)


def spread_within(sample: QueriesAndKeys) -> Float[Tensor, "head d_head d_head"]:
    """Covariance of keys within a sequence: what all keys of a sequence have in common, no query can tell apart."""
    k = sample.k - sample.k.mean(2, keepdim=True)
    return torch.einsum("shpd,shpe->hde", k, k) / (k.shape[0] * (k.shape[2] - 1))


def first_key_share(sample: QueriesAndKeys) -> Float[Tensor, " head"]:
    """Share of the spread of keys within a sequence that its first key alone makes; about 1 / positions by chance.

    Near 1 the first key is an outlier (an attention sink), and one normal law for all keys a poor picture.
    """
    squares = (sample.k - sample.k.mean(2, keepdim=True)).square().sum((0, 3))
    return squares[:, 0] / squares.sum(1)


def logits(
    sample: QueriesAndKeys, kind: str, forms: list[Float[Tensor, "#head d_head d_head"]]
) -> Iterator[Float[Tensor, "head n"]]:
    """The logits of all pairs of a kind, for each bilinear form scale * R_delta."""
    q, k = sample.pairs(kind)
    for form in forms:
        yield torch.einsum("hnd,hde,hne->hn", q, form.expand(len(q), -1, -1), k)
