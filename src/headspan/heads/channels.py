r"""Channels between two heads: the singular value decomposition of what leads from one through the other.

A source's circuit M = W_V W_O and a destination's N = W_QK (OQ), W_QK^T (OK) or W_V W_O (OV, a virtual head) compose
to M N, a d_model x d_model matrix of rank at most d_head. Neither is formed:

1. M = Q_M S^T with Q_M [d, p] orthonormal and the *sender* S = (R_V W_O)^T, from W_V = Q_M R_V.
2. N = D Q_N^T with Q_N orthonormal and the *receiver* D: A R_B^T for W_QK = A B^T, and likewise for the others.
3. The core S^T D [p, q] has the singular values of M N: S^T D = X diag(strength) Y^T.

Channel k leads from `source_k` = Q_M x_k, a direction that the source reads, to `target_k` = Q_N y_k: what the other
side of the attention score has to hold (the key's side for OQ, the query's for OK), or what the destination writes
(OV). Between the heads stand `sent_k` = S x_k, what the source writes for a unit of source_k, and `received_k` = D y_k,
along which the destination reads. They are biorthogonal, sent_j . received_k = strength_k if j = k, else 0. So of a
message m that the source writes, (m . received_k / strength_k) sent_k is the part that travels along channel k, and
taking it away takes the channel from M N and nothing else.

With grouped heads the destination is a query head; it brings the kv head that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import COMPOSING, HeadLabel, Role
from headspan.errors import ArgumentError
from headspan.heads.block import HeadBlock
from headspan.heads.heads import Heads
from headspan.heads.logits import bilinear_factors
from headspan.subspaces.factored import gram_root
from headspan.subspaces.rank import epsilon
from headspan.threads import one_thread

SIDES = ("source", "sent", "received", "target")
"""The four directions of a channel, in the order in which it is travelled."""
Factors = Float[Tensor, "layer head d_model _"]


def receiving_roles(pairings: Sequence[str]) -> tuple[Role, ...]:
    """Roles of a destination that channels of these pairings lead through."""
    scores = {"OQ", "OK"} & set(pairings)
    return (*(("Q", "K") if scores else ()), *(("V", "O") if "OV" in pairings else ()))


def senders(heads: Heads, block: HeadBlock) -> Factors:
    """S of every head up to a rotation of its columns, which no singular value of a core sees."""
    root = gram_root(block.W_V.mT @ block.W_V)
    return (heads.per_query_head(root).mT @ block.W_O).mT


def receivers(heads: Heads, block: HeadBlock, pairing: str, delta: int = 0) -> Factors:
    """D of every query head for one pairing, up to a rotation of its columns."""
    if pairing == "OV":
        W_V = heads.per_query_head(block.W_V)
        return W_V @ gram_root(block.W_O @ block.W_O.mT)
    A, B = bilinear_factors(heads, block, delta)
    if pairing == "OQ":
        return A @ heads.per_query_head(gram_root(B.mT @ B))
    return heads.per_query_head(B) @ gram_root(A.mT @ A)


@dataclass(frozen=True)
class Channels:
    """The channels of one pair of heads, strongest first.

    `source` and `target` are orthonormal rows; `sent` and `received` have the lengths that the module's text gives
    them. The sign of a channel is free; the largest entry of its source is positive.
    """

    strength: Float[Tensor, " channel"]
    source: Float[Tensor, "channel d_model"]
    sent: Float[Tensor, "channel d_model"]
    received: Float[Tensor, "channel d_model"]
    target: Float[Tensor, "channel d_model"]
    spectra: tuple[Float[Tensor, " _"], Float[Tensor, " _"]]
    """Singular values of M and of N, descending."""

    @property
    def norm(self) -> float:
        """||M||_F ||N||_F, which no strength exceeds."""
        return float(self.spectra[0].norm() * self.spectra[1].norm())

    @property
    def rank(self) -> int:
        """How many strengths are no rounding: channels that can be taken away."""
        floor = epsilon(self.strength) * self.source.shape[-1] * self.norm
        return int((self.strength > floor).sum())

    def directions(self) -> Float[Tensor, "channel 4 d_model"]:
        """The four directions of every channel at length 1, in the order of `SIDES`; NaN where one is zero."""
        lengths = [getattr(self, side).norm(dim=-1, keepdim=True) for side in SIDES]
        units = [torch.where(n > 0, getattr(self, side) / n, torch.nan) for side, n in zip(SIDES, lengths, strict=True)]
        return torch.stack(units, dim=1)


def check_pair(heads: Heads, src: HeadLabel, dst: HeadLabel) -> None:
    """Refuse heads that this model does not have, and a source that does not come first."""
    for label in (src, dst):
        if label.layer not in heads.layers or label.head >= heads.n_heads:
            raise ArgumentError(
                f"{label} does not exist: the model has layers {heads.layers[0]}..{heads.layers[-1]} and heads "
                f"0..{heads.n_heads - 1}"
            )
        if label.kv:
            raise ArgumentError(f"{label} is a kv head; name one of the query heads that read it")
    if src.layer >= dst.layer:
        raise ArgumentError(
            f"{src} and {dst} do not compose: the source must be in an earlier layer than the destination"
        )


def pair_channels(heads: Heads, src: HeadLabel, dst: HeadLabel, pairing: str, delta: int = 0) -> Channels:
    """The channels of one pair, in float64.

    Parameters
    ----------
    heads
        In the fold state that is meant (`heads.folded()`).
    src, dst
        Query heads; the source in an earlier layer.
    pairing
        OQ, OK or OV.
    delta
        For rotary models, the offset from key to query at which W_QK is taken.

    Returns
    -------
    Channels
        min(p, q) of them. Under a random rotation between the heads that keeps both spectra, strengths are about those
        of a random matrix: `headspan.subspaces.rotated_norms`.
    """
    double = heads.to("float64")
    return channels_between(
        double, double.layer(src.layer, ("V", "O")), double.layer(dst.layer), src, dst, pairing, delta
    )


def channels_between(
    heads: Heads, before: HeadBlock, after: HeadBlock, src: HeadLabel, dst: HeadLabel, pairing: str, delta: int = 0
) -> Channels:
    """As `pair_channels`, from the layers of source and destination as they were read."""
    if pairing not in COMPOSING:
        raise ArgumentError(f"{pairing!r} has no channels; pairings with channels are {', '.join(COMPOSING)}")
    group = heads.n_heads // heads.n_kv_heads
    W_V, W_O = before.W_V[0, src.head // group], before.W_O[0, src.head]
    if pairing == "OV":
        near, far = after.W_V[0, dst.head // group], after.W_O[0, dst.head].mT
    else:
        A, B = bilinear_factors(heads, after, delta)
        near, far = A[0, dst.head], B[0, dst.head // group]
        near, far = (near, far) if pairing == "OQ" else (far, near)
    with one_thread():
        Q_M, R_V = torch.linalg.qr(W_V)
        Q_N, R_far = torch.linalg.qr(far)
        sender, receiver = (R_V @ W_O).mT, near @ R_far.mT
        X, strength, Yh = torch.linalg.svd(sender.mT @ receiver, full_matrices=False)
        spectra = torch.linalg.svdvals(sender), torch.linalg.svdvals(receiver)
    source = (Q_M @ X).mT
    sign = torch.where(source.gather(1, source.abs().argmax(1, keepdim=True)) < 0, -1.0, 1.0)
    sent, received, target = (sender @ X).mT, (receiver @ Yh.mT).mT, (Q_N @ Yh.mT).mT
    return Channels(strength, sign * source, sign * sent, sign * received, sign * target, spectra)
