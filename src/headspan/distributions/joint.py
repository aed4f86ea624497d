r"""The joint Gaussian of a sequence: n vectors of R^d with means mu_i and covariances Sigma_ij = Cov(x_i, x_j).

Three forms with the same questions:

- `JointGaussian` holds all blocks, [n, n, d, d];
- `SampledJoint` holds a factor F [k, n, d] with Sigma_ij = F_i^T F_j, as centered samples are: k n d numbers;
- `SeparableJoint` holds T [n, n] and S [d, d] with Sigma_ij = T_ij S: n^2 + d^2 numbers.

The last two are closed under maps and attention and never build the nd x nd matrix: a question looks at one row of
blocks at a time.

A map sends Sigma_ij to L Sigma_ij L^T. One attention pass with given weights A sends x_i to sum_j A_ij x_j: that is one
Gaussian, with blocks sum_kl A_ik Sigma_kl A_jl. It is not a mixture; what a mixture of the tokens would have is kept
apart (`mixture_moments`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.canonical import information_from_factors
from headspan.distributions.divergences import probabilities
from headspan.distributions.estimates import sample_moments
from headspan.distributions.factors import cholesky, covariance
from headspan.distributions.information import entropy
from headspan.errors import ShapeError
from headspan.subspaces.rank import promote, require_finite
from headspan.threads import one_thread


@dataclass(frozen=True)
class JointGaussian:
    """All blocks.

    Parameters
    ----------
    mean
        [n, d].
    blocks
        [n, n, d, d], blocks[i, j] = Cov(x_i, x_j); blocks[j, i] is its transpose.
    """

    mean: Float[Tensor, "n d"]
    blocks: Float[Tensor, "_n _n _d _d"]

    def __post_init__(self) -> None:
        n, d = self.mean.shape
        if self.blocks.shape != (n, n, d, d):
            raise ShapeError(f"blocks of {n} vectors in R^{d} need shape {(n, n, d, d)}, found {self.blocks.shape}")
        require_finite(self.mean, "means")
        covariance(self.dense(), "the joint covariance")

    @staticmethod
    def from_samples(x: Float[Tensor, "N n d"]) -> JointGaussian:
        """Means and blocks of N sequences; of rank at most N - 1, so singular unless N exceeds n d."""
        N, n, d = x.shape
        mean, S = sample_moments(x.reshape(N, n * d))
        return JointGaussian(mean.reshape(n, d), S.reshape(n, d, n, d).transpose(1, 2).contiguous())

    def dense(self) -> Float[Tensor, "nd nd"]:
        """Sigma, [n d, n d]."""
        n, d = self.mean.shape
        return self.blocks.transpose(1, 2).reshape(n * d, n * d)

    def marginals(self) -> Float[Tensor, "n d d"]:
        """Sigma_ii."""
        return self.blocks.diagonal(dim1=0, dim2=1).permute(2, 0, 1)

    def row(self, i: int) -> Float[Tensor, "n d d"]:
        """Sigma_ij for all j."""
        return self.blocks[i]

    def image(self, L: Float[Tensor, "m _d"]) -> JointGaussian:
        """The law of (L x_1, ..., L x_n)."""
        _require_columns(L, self.mean.shape[1], "a map")
        return JointGaussian(self.mean @ L.T, L @ self.blocks @ L.T)

    def after_attention(self, weights: Float[Tensor, "q _n"]) -> JointGaussian:
        """The law of x_i' = sum_j weights_ij x_j."""
        _require_columns(weights, len(self.mean), "attention")
        return JointGaussian(weights @ self.mean, torch.einsum("ik,klab,jl->ijab", weights, self.blocks, weights))


@dataclass(frozen=True)
class SampledJoint:
    """Sigma_ij = F_i^T F_j, never formed.

    Parameters
    ----------
    mean
        [n, d].
    factor
        [k, n, d].
    """

    mean: Float[Tensor, "n d"]
    factor: Float[Tensor, "k _n _d"]

    def __post_init__(self) -> None:
        if self.factor.shape[1:] != self.mean.shape:
            raise ShapeError(
                f"a factor needs shape [k, {', '.join(map(str, self.mean.shape))}], found {self.factor.shape}"
            )

    @staticmethod
    def from_samples(x: Float[Tensor, "N n d"]) -> SampledJoint:
        """The same law as `JointGaussian.from_samples`, as centered samples over sqrt(N - 1)."""
        x = promote(x, "samples")
        if len(x) < 2:
            raise ShapeError(f"a covariance needs at least 2 sequences, found {len(x)}")
        require_finite(x, "samples")
        return SampledJoint(x.mean(0), (x - x.mean(0)) / (len(x) - 1) ** 0.5)

    def marginals(self) -> Float[Tensor, "n d d"]:
        """Sigma_ii."""
        F = self.factor.transpose(0, 1)
        return F.mT @ F

    def row(self, i: int) -> Float[Tensor, "n d d"]:
        """Sigma_ij for all j."""
        return self.factor[:, i].T @ self.factor.transpose(0, 1)

    def image(self, L: Float[Tensor, "m _d"]) -> SampledJoint:
        """The law of (L x_1, ..., L x_n)."""
        _require_columns(L, self.mean.shape[1], "a map")
        return SampledJoint(self.mean @ L.T, self.factor @ L.T)

    def after_attention(self, weights: Float[Tensor, "q _n"]) -> SampledJoint:
        """The law of x_i' = sum_j weights_ij x_j."""
        _require_columns(weights, len(self.mean), "attention")
        return SampledJoint(weights @ self.mean, weights @ self.factor)


@dataclass(frozen=True)
class SeparableJoint:
    """Sigma_ij = T_ij S, never formed.

    Parameters
    ----------
    mean
        [n, d].
    T
        [n, n], covariance between positions.
    S
        [d, d], covariance between coordinates.
    """

    mean: Float[Tensor, "n d"]
    T: Float[Tensor, "_n _n"]
    S: Float[Tensor, "_d _d"]

    def __post_init__(self) -> None:
        for name, side in (("T", 0), ("S", 1)):
            if len(covariance(getattr(self, name), name)) != self.mean.shape[side]:
                raise ShapeError(f"{name} needs the side {self.mean.shape[side]}, found {len(getattr(self, name))}")

    def marginals(self) -> Float[Tensor, "n d d"]:
        """Sigma_ii."""
        return self.T.diagonal()[:, None, None] * self.S

    def row(self, i: int) -> Float[Tensor, "n d d"]:
        """Sigma_ij for all j."""
        return self.T[i][:, None, None] * self.S

    def image(self, L: Float[Tensor, "m _d"]) -> SeparableJoint:
        """The law of (L x_1, ..., L x_n)."""
        _require_columns(L, self.mean.shape[1], "a map")
        return SeparableJoint(self.mean @ L.T, self.T, L @ self.S @ L.T)

    def after_attention(self, weights: Float[Tensor, "q _n"]) -> SeparableJoint:
        """The law of x_i' = sum_j weights_ij x_j."""
        _require_columns(weights, len(self.mean), "attention")
        return SeparableJoint(weights @ self.mean, weights @ self.T @ weights.T, self.S)

    def joint_entropy(self) -> float:
        """H(x_1, ..., x_n) = d H(T) + n H(S) - n d H(1), in nats; -inf where T or S is singular."""
        n, d = self.mean.shape
        unit = float(entropy(torch.ones(1, 1, dtype=torch.float64)))
        return d * float(entropy(self.T)) + n * float(entropy(self.S)) - n * d * unit


Joint = JointGaussian | SampledJoint | SeparableJoint
"""Anything the questions below can be asked of."""


def _require_columns(matrix: Tensor, columns: int, what: str) -> None:
    if matrix.shape[-1] != columns:
        raise ShapeError(f"{what} needs {columns} columns here, found shape {tuple(matrix.shape)}")


def token_entropies(joint: Joint) -> Float[Tensor, " n"]:
    """H(x_i) of every vector, in nats; -inf where its covariance is singular."""
    return entropy(joint.marginals())


def pairwise_information(joint: Joint) -> Float[Tensor, "n n"]:
    """I(x_i; x_j) of all pairs, in nats, one row of blocks at a time; every Sigma_ii is factored once.

    Returns
    -------
    Tensor
        Symmetric, in [0, inf], 0 for independent vectors; the diagonal inf, since a vector tells all about itself.
    """
    S = joint.marginals()
    n = len(S)
    with one_thread():
        L, regular = cholesky(S)
    out = torch.full((n, n), torch.inf, dtype=S.dtype, device=S.device)
    for i in range(n - 1):
        after = slice(i + 1, n)
        sure = regular[i] & regular[after]
        out[i, after] = information_from_factors(L[i], L[after], sure, S[i], S[after], joint.row(i)[after])
        out[after, i] = out[i, after]
    return out


def mixture_moments(
    joint: Joint, weights: Float[Tensor, "q _n"]
) -> tuple[Float[Tensor, "q d"], Float[Tensor, "q d d"]]:
    """Mean and covariance, per row of weights, of the vector that is x_j with probability weights_ij.

    Covariance sum_j w_j (Sigma_jj + mu_j mu_j^T) - m m^T: what a mixture has, and what attention, which adds vectors
    instead of choosing one, does not have.
    """
    _require_columns(weights, len(joint.mean), "a mixture")
    weights = probabilities(weights, "a mixture's weights")
    second = joint.marginals() + joint.mean[:, :, None] * joint.mean[:, None, :]
    mean = weights @ joint.mean
    return mean, torch.einsum("qn,nab->qab", weights, second) - mean[:, :, None] * mean[:, None, :]
