"""How much neighboring tokens of the stream say about each other, if it is taken to be Gaussian.

The stream has more dimensions than can be fitted, so the leading principal components stand for it: as linear maps they
can only lose information, and the value is a lower bound (of the Gaussian picture's). The null is the same estimate for
tokens of different sequences, as far apart: they have only their places in common.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions import information_estimate

COMPONENTS = 16
PER_SAMPLE = 20
"""Samples wanted for every component of both sides."""


def leading_components(reads: Float[Tensor, "sequence position d"]) -> Float[Tensor, "sequence position k"]:
    """The reads on their first principal axes: 16, or as many as the number of samples supports."""
    flat = reads.double().flatten(0, 1)
    k = max(1, min(COMPONENTS, len(flat) // (2 * PER_SAMPLE), flat.shape[1]))
    centered = flat - flat.mean(0)
    vectors: Tensor = torch.linalg.eigh(centered.mT @ centered)[1][:, -k:]
    return (centered @ vectors).reshape(*reads.shape[:2], k)


def information_at(
    components: Float[Tensor, "sequence position k"], distance: int, related: bool = True
) -> Float[Tensor, ""]:
    """Nats between tokens so far apart, corrected for bias; 0 under the null, which is had with `related=False`."""
    x, y = components[:, distance:], components[:, : components.shape[1] - distance]
    if not related:
        y = y.roll(1, dims=0)
    return information_estimate(x.flatten(0, 1), y.flatten(0, 1))
