r"""Does the token before tell where the next embedding lies? A bigram Gaussian fitted to text, on held-out text.

1. Embeddings are taken in the leading r directions of the training tokens' own covariance.
2. The law of the next token given token a is its successors' counts in the training part, (n_ab + s pi_b) / (n_a + s),
   with the frequencies pi of all tokens as a prior of weight s. Its k likeliest tokens give mean and covariance, and
   what they leave of the trace is isotropic noise, as thesis 4.2.3 has it; the floor is that of the marginal.
3. On the held-out part, the mean log-density of the next embedding under N(mu_a, S_a), less that under the marginal
   N(mu, S): what conditioning gains, in nats per token.

Null: the same tokens in random order, where the token before tells nothing and conditioning loses by what it overfits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.distributions.tokens import token_moments
from headspan.errors import ArgumentError

PRIOR = 5.0
"""Weight of the frequencies of all tokens, in occurrences of the token before."""
FLOOR = 0.05
"""Share of the marginal's mean variance that is added to every covariance, so that single successors have a density."""
FEWEST = 200


@dataclass(frozen=True)
class BigramFit:
    """Held-out nats per token that conditioning gains; the same for shuffled tokens, mean and sd over shuffles."""

    gain: float
    null: float
    null_sd: float
    tokens: int
    """Held-out tokens."""


def bigram_fit(
    V: Float[Tensor, "vocabulary d"],
    ids: Int[Tensor, " n"],
    *,
    rank: int = 16,
    top: int = 5,
    held_out: float = 0.2,
    shuffles: int = 5,
    seed: int = 0,
) -> BigramFit:
    """Fit a bigram Gaussian to a text and score it on the rest of the text.

    Parameters
    ----------
    V
        Embeddings in rows.
    ids
        The tokens of a text, at least 200.
    rank, top
        Leading directions that embeddings are taken in, and how many successors make a Gaussian.
    held_out, shuffles, seed
        Share of the text at its end that is scored; how many random orders the null is made of, and their seed.

    Returns
    -------
    BigramFit
        `gain` is any number; under the null it is `null`, at most 0 up to its error.
    """
    if len(ids) < FEWEST or not 0 < held_out < 1 or shuffles < 2:
        raise ArgumentError(f"a fit needs {FEWEST} tokens and 2 shuffles or more, found {len(ids)} and {shuffles}")
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(ids), generator=generator) for _ in range(shuffles)]
    options = (rank, top, held_out)
    null = torch.tensor([_gain(V.double(), ids[order], *options) for order in orders], dtype=torch.float64)
    gain = _gain(V.double(), ids, *options)
    return BigramFit(gain, float(null.mean()), float(null.std()), len(ids) - int(len(ids) * (1 - held_out)) - 1)


def _gain(V: Tensor, ids: Tensor, rank: int, top: int, held_out: float) -> float:
    used, local = torch.unique(ids, return_inverse=True)
    cut = int(len(ids) * (1 - held_out))
    train, test = local[:cut], local[cut:]
    n = len(used)
    frequency = (torch.bincount(train, minlength=n) + 1e-3).double()
    frequency /= frequency.sum()
    X = _leading(V[used], frequency, min(rank, V.shape[1], n))
    mean, covariance = token_moments(X, frequency)
    floor = FLOOR * covariance.diagonal().mean() * torch.eye(X.shape[1], dtype=X.dtype)
    marginal = _log_density(X[test[1:]], mean, covariance + floor)
    counts = torch.zeros(n, n, dtype=torch.float64)
    counts.index_put_((train[:-1], train[1:]), torch.ones(cut - 1, dtype=torch.float64), accumulate=True)
    laws = (counts + PRIOR * frequency) / (counts.sum(1, keepdim=True) + PRIOR)
    total = 0.0
    for before in torch.unique(test[:-1]):
        following = X[test[1:][test[:-1] == before]]
        mu, S = _successors(X, laws[before], min(top, n))
        total += float(_log_density(following, mu, S + floor).sum())
    return (total - float(marginal.sum())) / (len(test) - 1)


def _leading(V: Tensor, frequency: Tensor, rank: int) -> Tensor:
    """Embeddings in the leading directions of their own covariance."""
    _, covariance = token_moments(V, frequency)
    leading: Tensor = V @ torch.linalg.eigh(covariance).eigenvectors[:, -rank:]
    return leading


def _successors(X: Tensor, law: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Mean of the whole law; covariance of its likeliest tokens, the rest of the trace as isotropic noise."""
    mean, full = token_moments(X, law)
    _, kept = token_moments(X, law, top=top)
    lost = (full - kept).diagonal().mean().clamp(min=0)
    return mean, kept + lost * torch.eye(X.shape[1], dtype=X.dtype)


def _log_density(x: Tensor, mean: Tensor, S: Tensor) -> Tensor:
    L = torch.linalg.cholesky(S)
    z = torch.linalg.solve_triangular(L, (x - mean).mT, upper=False)
    logs: Tensor = -0.5 * z.square().sum(0) - L.diagonal().log().sum() - 0.5 * len(mean) * math.log(2 * math.pi)
    return logs
