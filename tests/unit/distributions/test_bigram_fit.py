"""A bigram Gaussian fitted to tokens: it gains where the token before tells something, and nothing in random order."""

from __future__ import annotations

import pytest
import torch

from headspan.distributions.bigram_fit import bigram_fit
from headspan.errors import ArgumentError


def chain(sharpness: float, n: int = 3000, size: int = 12) -> torch.Tensor:
    """A Markov chain of tokens; 0 makes the next one independent of the one before."""
    generator = torch.Generator().manual_seed(1)
    P = (sharpness * torch.randn(size, size, generator=generator)).softmax(-1)
    ids = [0]
    for _ in range(n - 1):
        ids.append(int(torch.multinomial(P[ids[-1]], 1, generator=generator)))
    return torch.tensor(ids)


V = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))


def test_conditioning_gains_on_a_chain_and_nothing_on_shuffled_tokens() -> None:
    found = bigram_fit(V, chain(4.0), rank=6)
    assert found.gain > 0.5
    assert found.gain > found.null + 10 * found.null_sd
    assert found.null < 0.02


def test_independent_tokens_gain_no_more_than_their_shuffles() -> None:
    found = bigram_fit(V, chain(0.0), rank=6)
    assert abs(found.gain - found.null) < 4 * found.null_sd
    with pytest.raises(ArgumentError, match="a fit needs 200 tokens"):
        bigram_fit(V, chain(0.0, n=50))
