r"""How many dimensions an attention pattern has, and what changes when its weights depend on the data.

A pattern's numerical rank is counted three ways: singular values above rounding, and the fewest that hold a share of
the energy sum s^2. Random logits of full width give full numerical rank at any length; the logarithm of the length, as
argued from random projections, is no bound on it.

With tokens that are Gaussian and weights held fixed, what attention puts out is Gaussian with covariance (A x I) S (A x
I)^T. Real weights follow the tokens; `data_dependence` samples both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.mixing import attention_pattern
from headspan.errors import ShapeError
from headspan.subspaces.precision import require_finite


def _stochastic(A: Tensor) -> Tensor:
    require_finite(A, "an attention pattern")
    A = A.double()
    off = float((A.sum(-1) - 1).abs().max())
    if off > 1e-5 or float(A.min()) < 0:
        raise ShapeError(
            f"an attention pattern needs rows of probabilities that sum to 1, found sums off by {off:.3g}, a least "
            f"entry of {float(A.min()):.3g}; apply softmax first"
        )
    return A


def energy_rank(A: Float[Tensor, "*batch m n"], share: float) -> Tensor:
    """The fewest singular values that hold a share of sum s^2; an integer in [1, min(m, n)], 0 for a zero matrix."""
    if not 0 < share <= 1:
        raise ShapeError(f"a share of energy needs to be in (0, 1], found {share:g}")
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
        raise ShapeError(f"a pattern needs at least 1 token and 1 dimension, found {n} and {d}")
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
        raise ShapeError(f"a covariance needs at least 2 draws, found {draws}")
    mean, covariance = mean.double(), covariance.double()
    require_finite(covariance, "a covariance")
    values, vectors = torch.linalg.eigh((covariance + covariance.mT) / 2)
    if float(values[0]) < -1e-9 * float(values[-1].abs()):
        raise ShapeError(f"a covariance needs eigenvalues of at least 0, found {float(values[0]):.3g}")
    root = vectors * values.clamp(min=0).sqrt()
    X = mean + (torch.randn(draws, n * d, generator=generator, dtype=torch.float64) @ root.mT).reshape(draws, n, d)
    unit = torch.eye(d, dtype=torch.float64)
    out = attention_pattern(X, W_QK.double(), unit, scale) @ X
    mixed = torch.kron(attention_pattern(mean, W_QK.double(), unit, scale), unit)
    return DataDependence(following=torch.cov(out.flatten(1).mT), fixed=mixed @ covariance @ mixed.mT)
