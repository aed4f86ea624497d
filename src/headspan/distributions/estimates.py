r"""Covariance, entropy and mutual information of Gaussians from samples.

Samples are rows and are centered first: uncentered moments would count the means as spread. Three remedies for few
samples N in many dimensions d:

1. bias. For N samples of a Gaussian the covariance S with divisor N - 1 has
   E log|S| = log|Sigma| + sum_{i=1}^{d} psi((N - i) / 2) - d log((N - 1) / 2),
   so that plug-in entropies are too low and plug-in information is too high, by about p q / (2 N). Subtracting the
   known term makes both unbiased at every N > d.
2. shrinkage towards a multiple of the identity, S -> (1 - a) S + a tr(S)/d I, with the weight of Ledoit and Wolf (2004)
   for any law or of Chen et al. (2010, OAS) for Gaussians; regular at any N >= 2.
3. none: with N <= d the plug-in covariance is singular, and what would come out as infinite is refused instead.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.canonical import mutual_information
from headspan.distributions.information import entropy
from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.rank import promote, require_finite

Shrinkage = Literal["ledoit-wolf", "oas"]


def _samples(x: Tensor) -> Tensor:
    x = promote(x, "samples")
    if x.ndim < 2 or x.shape[-2] < 2 or x.shape[-1] < 1:
        raise ShapeError(f"samples need shape [..., N, d] with N >= 2, found {tuple(x.shape)}")
    require_finite(x, "samples")
    return x


def sample_moments(
    x: Float[Tensor, "*batch N d"], unbiased: bool = True
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d d"]]:
    """Mean and covariance of samples in rows; divisor N - 1, or N (maximum likelihood) with `unbiased=False`.

    Returns
    -------
    mean, covariance
        The covariance is positive semidefinite, of rank at most N - 1.
    """
    x = _samples(x)
    mean = x.mean(-2)
    centered = x - mean.unsqueeze(-2)
    return mean, centered.mT @ centered / (x.shape[-2] - int(unbiased))


def shrunk_covariance(
    x: Float[Tensor, "*batch N d"], method: Shrinkage = "ledoit-wolf"
) -> tuple[Float[Tensor, "*batch d d"], Float[Tensor, "*batch"]]:
    """(1 - a) S + a tr(S)/d I with S the maximum-likelihood covariance, and the weight a.

    Parameters
    ----------
    x
        Samples in rows.
    method
        How a is chosen: "ledoit-wolf" for any law, "oas" if the samples are Gaussian.

    Returns
    -------
    covariance, weight
        Positive definite unless all samples are equal; the weight in [0, 1], near 1 for few samples of nearly equal
        spread in all directions, tending to 0 with N.

    References
    ----------
    Ledoit and Wolf (2004), A well-conditioned estimator for large-dimensional covariance matrices; Chen, Wiesel, Eldar
    and Hero (2010), Shrinkage algorithms for MMSE covariance estimation.
    """
    if method not in get_args(Shrinkage):
        raise ArgumentError(f"shrinkage is 'ledoit-wolf' or 'oas', found {method!r}")
    mean, S = sample_moments(x, unbiased=False)
    N, d = x.shape[-2:]
    level = S.diagonal(dim1=-2, dim2=-1).sum(-1) / d
    squares = S.square().sum((-1, -2))
    if method == "ledoit-wolf":
        fourth = (x - mean.unsqueeze(-2)).square().sum(-1).square().mean(-1)
        distance = squares - d * level**2
        weight = torch.minimum((fourth - squares) / N, distance) / torch.where(distance > 0, distance, 1.0)
    else:
        distance = (N + 1) * (squares - d * level**2)
        weight = (squares + (d * level) ** 2) / torch.where(distance > 0, distance, torch.inf)
        weight = torch.where(distance > 0, weight, 1.0)
    a = weight.clamp(0, 1)
    eye = torch.eye(d, dtype=S.dtype, device=S.device)
    return (1 - a)[..., None, None] * S + (a * level)[..., None, None] * eye, a


def log_determinant_bias(d: int, samples: int) -> float:
    """E log|S| - log|Sigma| for the covariance S (divisor N - 1) of N samples of a d-dimensional Gaussian; below 0.

    References
    ----------
    Misra, Singh and Demchuk (2005), Estimation of the entropy of a multivariate normal distribution.
    """
    if samples <= d:
        raise ArgumentError(f"a regular covariance in {d} dimensions needs more than {d} samples, found {samples}")
    i = torch.arange(1, d + 1, dtype=torch.float64)
    half = torch.tensor((samples - 1) / 2, dtype=torch.float64)
    return float((torch.special.digamma((samples - i) / 2) - half.log()).sum())


def entropy_estimate(
    x: Float[Tensor, "*batch N d"], shrinkage: Shrinkage | None = None, correct: bool = True
) -> Float[Tensor, "*batch"]:
    """Differential entropy of the Gaussian that samples come from, in nats.

    Parameters
    ----------
    x
        Samples in rows; more than d of them unless shrunk.
    shrinkage
        Shrink the covariance first (then nothing is corrected: the bias is not known).
    correct
        Subtract the bias of the plug-in value, which is otherwise too low by about d (d + 1) / (4 N).

    Returns
    -------
    Tensor
        In (-inf, inf); unbiased for Gaussian samples if corrected.
    """
    N, d = _samples(x).shape[-2:]
    if shrinkage is not None:
        return entropy(shrunk_covariance(x, shrinkage)[0])
    bias = log_determinant_bias(d, N)
    return entropy(sample_moments(x)[1]) - (0.5 * bias if correct else 0.0)


def information_estimate(
    x: Float[Tensor, "*batch _N p"],
    y: Float[Tensor, "*batch _N q"],
    shrinkage: Shrinkage | None = None,
    correct: bool = True,
) -> Float[Tensor, "*batch"]:
    """Mutual information of jointly Gaussian x and y from N samples of both, in nats.

    Parameters
    ----------
    x, y
        Samples in rows, row by row together; more than p + q of them unless shrunk.
    shrinkage, correct
        As of `entropy_estimate`; the joint covariance is what is shrunk.

    Returns
    -------
    Tensor
        Under the null of independence: plug-in about p q / (2 N), in [0, inf); corrected 0 on average, so half of the
        values are below 0; shrunk in [0, inf), pulled towards 0.
    """
    if x.shape[-2] != y.shape[-2]:
        raise ShapeError(f"x and y need the same number of samples, found {x.shape[-2]} and {y.shape[-2]}")
    p, both = x.shape[-1], torch.cat([x, y], dim=-1)
    N, d = _samples(both).shape[-2:]
    bias = 0.0
    if shrinkage is None:
        bias = log_determinant_bias(d, N)
        S = sample_moments(both)[1]
    else:
        S = shrunk_covariance(both, shrinkage)[0]
    value = mutual_information(S[..., :p, :p], S[..., p:, p:], S[..., :p, p:])
    if shrinkage is None and correct:
        value = value - 0.5 * (log_determinant_bias(p, N) + log_determinant_bias(d - p, N) - bias)
    return value
