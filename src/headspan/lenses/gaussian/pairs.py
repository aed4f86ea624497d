r"""Pairs of a query and a key whose logit is looked at, and the Gaussian fitted to them.

- self: a token with itself;
- neighbor: with the token one before it;
- unrelated: with a token of another sequence, half a sequence away. In a rotary model these are taken at several
  distances, and their logits together are a mixture over distances.

The picture is a joint Gaussian over the sequence: every position has a mean of its own, and covariances depend on the
distance alone. W_Q and W_K are linear, so that queries and keys are jointly Gaussian with the images of these moments,
which equal the moments of sampled queries and keys; they are fitted there, in d_head dimensions. This also serves
models that norm queries and keys, where the picture is one of the normed ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lenses.gaussian.schema import PAIRS

SELF, NEIGHBOR, UNRELATED = PAIRS
DISTANCES = (2, 4, 8, 16, 32)
"""Distances at which unrelated pairs of a rotary model are taken, as far as the sequences reach."""


@dataclass(frozen=True)
class QueriesAndKeys:
    """Queries and keys of one layer before positions turn them, keys repeated so that every head has its own."""

    q: Float[Tensor, "sequence head position d_head"]
    k: Float[Tensor, "sequence head position d_head"]

    def part(self, sequences: slice) -> QueriesAndKeys:
        return QueriesAndKeys(self.q[sequences], self.k[sequences])

    def pairs(self, kind: str) -> QueriesAndKeys:
        """The queries and keys of all pairs of a kind, a pair at each position."""
        q, k = self.q, self.k
        if kind == NEIGHBOR:
            return QueriesAndKeys(q[:, :, 1:], k[:, :, :-1])
        if kind == UNRELATED:
            # Neither words nor places go together.
            return QueriesAndKeys(q, k.roll(1, dims=0).roll(k.shape[2] // 2, dims=2))
        return self


def distances(kind: str, rotary: bool, length: int) -> tuple[int, ...]:
    """Positions from key to query at which the logits of a kind of pair are taken."""
    if kind == SELF or not rotary:
        return (0,)
    if kind == NEIGHBOR:
        return (1,)
    return tuple(delta for delta in DISTANCES if delta < length)


@dataclass(frozen=True)
class PairMoments:
    """Means of queries and keys at every position; covariances around them, over all positions together."""

    mean_q: Float[Tensor, "position head d_head"]
    mean_k: Float[Tensor, "position head d_head"]
    S_q: Float[Tensor, "head d_head d_head"]
    S_k: Float[Tensor, "head d_head d_head"]
    S_qk: Float[Tensor, "head d_head d_head"] | None
    """None for unrelated pairs: they are taken to be independent, which is what the word says."""


def fitted(sample: QueriesAndKeys, kind: str) -> PairMoments:
    """The moments of a kind of pair."""
    pairs = sample.pairs(kind)
    mean_q, mean_k = pairs.q.mean(0), pairs.k.mean(0)
    q, k = pairs.q - mean_q, pairs.k - mean_k
    S_qk = None if kind == UNRELATED else _covariance(q, k)
    return PairMoments(mean_q.movedim(0, 1), mean_k.movedim(0, 1), _covariance(q, q), _covariance(k, k), S_qk)


def _covariance(a: Tensor, b: Tensor) -> Float[Tensor, "head d_head d_head"]:
    return torch.einsum("shpd,shpe->hde", a, b) / ((a.shape[0] - 1) * a.shape[2])


def gaussian_sample(moments: PairMoments, sequences: int, seed: int) -> QueriesAndKeys:
    """Sequences of Gaussian queries and keys with the moments of self pairs; different tokens are independent."""
    if moments.S_qk is None:
        raise ValueError("moments of self pairs are needed")
    n, n_heads, d_head = moments.mean_q.shape
    S = torch.cat([torch.cat([moments.S_q, moments.S_qk], -1), torch.cat([moments.S_qk.mT, moments.S_k], -1)], dim=-2)
    values, vectors = torch.linalg.eigh(S)
    root = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(sequences, n_heads, n, 2 * d_head, generator=generator, dtype=torch.float64)
    both = noise.to(root.device) @ root.mT  # drawn on the CPU: the same numbers for every device
    q, k = both[..., :d_head], both[..., d_head:]
    return QueriesAndKeys(q + moments.mean_q.movedim(1, 0), k + moments.mean_k.movedim(1, 0))


def logits(
    sample: QueriesAndKeys, kind: str, forms: list[Float[Tensor, "d_head d_head"]]
) -> Iterator[Float[Tensor, "head n"]]:
    """The logits of all pairs of a kind, for each bilinear form scale * R_delta."""
    pairs = sample.pairs(kind)
    for form in forms:
        yield ((pairs.q @ form) * pairs.k).sum(-1).movedim(1, 0).flatten(1)
