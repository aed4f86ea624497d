r"""Entropy, cross-entropy and Kullback-Leibler divergence of Gaussians, in nats, from their means and covariances.

    H(p)        = 1/2 [d log 2 pi + d + log|S|]
    H(p, q)     = 1/2 [d log 2 pi + log|S2| + tr(S2^-1 S1) + m],   m = (mu1 - mu2)^T S2^-1 (mu1 - mu2)
    KL(p || q)  = 1/2 [tr(S2^-1 S1) + m - d + log|S2| - log|S1|]

A Gaussian without spread in some direction has no density in R^d. What holds then is returned, never NaN: an entropy
of -inf; a divergence that is finite only if both live on the same affine subspace (where it is worked out) and +inf
otherwise; a cross-entropy of -inf where q's subspace holds all of p, +inf where it does not.

Under an invertible x -> L x entropies grow by log|det L| and divergences stay; a map with fewer rows than columns is
applied to the moments (`linear_image`), after which every function here applies.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.factors import (
    cholesky,
    common_batch,
    covariance,
    in_cache,
    log_determinant,
    rescale,
    squared_distance,
    support,
    unit_scale,
    vector,
)
from headspan.errors import ShapeError
from headspan.threads import one_thread

LOG_2PI = math.log(2 * math.pi)


def entropy(S: Float[Tensor, "*batch d _d"]) -> Float[Tensor, "*batch"]:
    """Differential entropy of N(mu, S), whatever mu is.

    Parameters
    ----------
    S
        Covariances, symmetric and positive semidefinite.

    Returns
    -------
    Tensor
        In [-inf, inf); -inf exactly where S is singular. The largest entropy that a law with these second moments has.

    References
    ----------
    Cover and Thomas (2006), Elements of Information Theory, theorem 8.4.1.
    """
    S = covariance(S)
    d = S.shape[-1]
    batch, rows = common_batch((S, 2))
    return 0.5 * (d * (LOG_2PI + 1) + in_cache(_log_det, *rows).reshape(batch))


def _log_det(S: Tensor) -> Tensor:
    """log|S|; -inf where S is singular."""
    L, regular = cholesky(S)
    out = log_determinant(L)
    if not bool(regular.all()):
        units = unit_scale(S[~regular])
        values, _, inside = support(rescale(S[~regular], units))
        exact = torch.where(inside, values, 1.0).log().sum(-1) + 2 * units.log().sum(-1)
        out[~regular] = torch.where(inside.all(-1), exact, -torch.inf)
    return out


def kl_divergence(
    mu1: Float[Tensor, "*first _d"],
    S1: Float[Tensor, "*second _d _d"],
    mu2: Float[Tensor, "*third _d"],
    S2: Float[Tensor, "*fourth _d _d"],
) -> Float[Tensor, "*out"]:
    """KL(N(mu1, S1) || N(mu2, S2)); batch axes broadcast.

    Returns
    -------
    Tensor
        In [0, inf]; 0 exactly where both are equal; inf where they do not share their support.

    References
    ----------
    Kullback and Leibler (1951), On information and sufficiency.
    """
    batch, (first, S1, second, S2) = gaussian_pairs(mu1, S1, mu2, S2)
    return in_cache(_kl, first - second, S1, S2).reshape(batch)


def pairwise_kl_divergence(mu: Float[Tensor, "n d"], S: Float[Tensor, "n d _d"]) -> Float[Tensor, "n n"]:
    """KL(N(mu_i, S_i) || N(mu_j, S_j)) for all i, j: every covariance is factored once and all traces are one product.

    Returns
    -------
    Tensor
        Row i, column j; in [0, inf], the diagonal 0. Agrees with `kl_divergence` to about 1e-13 of the largest term.
    """
    S = covariance(S)
    mu = vector(mu, S)
    n, d = mu.shape
    with one_thread():
        L, regular = cholesky(S)
        inverse = torch.cholesky_inverse(L)
        mixed = inverse.flatten(1) @ S.flatten(1).T  # [j, i]: tr(S_j^-1 S_i)
        turned = torch.einsum("jab,ib->jia", inverse, mu)  # S_j^-1 mu_i
        own = turned[torch.arange(n), torch.arange(n)]
        distance = (turned * mu).sum(-1) - 2 * (mu @ own.T).T + (own * mu).sum(-1, keepdim=True)
        logs = log_determinant(L)
    out = (0.5 * (mixed + distance - d + logs[:, None] - logs)).clamp(min=0).T.contiguous()
    if not bool(regular.all()):
        i, j = (~(regular[:, None] & regular)).nonzero(as_tuple=True)
        out[i, j] = kl_divergence(mu[i], S[i], mu[j], S[j])
    return out.fill_diagonal_(0.0)


def cross_entropy(
    mu1: Float[Tensor, "*first _d"],
    S1: Float[Tensor, "*second _d _d"],
    mu2: Float[Tensor, "*third _d"],
    S2: Float[Tensor, "*fourth _d _d"],
) -> Float[Tensor, "*out"]:
    """-E log q under p, p = N(mu1, S1) and q = N(mu2, S2); batch axes broadcast.

    Returns
    -------
    Tensor
        At least the entropy of p, with equality for q = p; -inf or inf where q is singular (see the module).
    """
    batch, (first, S1, second, S2) = gaussian_pairs(mu1, S1, mu2, S2)
    return in_cache(_cross, first - second, S1, S2).reshape(batch)


def gaussian_pairs(mu1: Tensor, S1: Tensor, mu2: Tensor, S2: Tensor) -> tuple[torch.Size, list[Tensor]]:
    """The common batch shape, and mu1, S1, mu2, S2 as [n, ...] each, checked."""
    S1, S2 = covariance(S1, "the first covariance"), covariance(S2, "the second covariance")
    if S1.shape[-1] != S2.shape[-1]:
        raise ShapeError(f"both Gaussians need one dimension, found {S1.shape[-1]} and {S2.shape[-1]}")
    first, second = vector(mu1, S1, "the first mean"), vector(mu2, S2, "the second mean")
    return common_batch((first, 1), (S1, 2), (second, 1), (S2, 2))


def _kl(gap: Tensor, S1: Tensor, S2: Tensor) -> Tensor:
    L1, regular1 = cholesky(S1)
    L2, regular2 = cholesky(S2)
    distance = squared_distance(L2, gap)
    # X = L2^-1 L1 holds the whole rest: tr(S2^-1 S1) = |X|^2 and log|S1| - log|S2| = 2 sum log X_ii. Diagonal first, so
    # that equal covariances, where X = I, cancel to the last digit.
    X: Tensor = torch.linalg.solve_triangular(L2, L1, upper=False)
    diagonal = X.diagonal(dim1=-2, dim2=-1)
    squares = diagonal.square()
    spread = (squares - 1 - squares.log()).sum(-1) + (X.square().sum((-1, -2)) - squares.sum(-1))
    out = (0.5 * (distance + spread)).clamp(min=0)
    for i in (~(regular1 & regular2)).nonzero().flatten().tolist():
        out[i] = _kl_on_support(gap[i], S1[i], S2[i])
    return out


def _kl_on_support(gap: Tensor, S1: Tensor, S2: Tensor) -> float:
    """KL of one pair of which a covariance may be singular."""
    units = unit_scale(S2)
    gap, S1, S2 = gap / units, rescale(S1, units), rescale(S2, units)
    first, second = support(S1, "the first covariance"), support(S2, "the second covariance")
    U = second[1][:, second[2]]
    scale = torch.maximum(first[0].max(), second[0].max()).sqrt()
    slack = 1e-7 * scale
    if int(first[2].sum()) != U.shape[1] or _beyond(gap, U) > max(float(slack), 1e-9 * float(gap.norm())):
        return math.inf
    outside = S1 - S1 @ U @ U.T
    if float(outside.norm()) > 1e-8 * float(S1.norm()):
        return math.inf
    if not U.shape[1]:
        return 0.0
    S, T = U.T @ S1 @ U, second[0][second[2]]
    ratio = S / T
    log_ratio = first[0][first[2]].log().sum() - T.log().sum()
    distance = ((U.T @ gap) ** 2 / T).sum()
    return max(0.0, 0.5 * float(ratio.diagonal().sum() - U.shape[1] - log_ratio + distance))


def _beyond(x: Tensor, U: Tensor) -> float:
    """Length of the part of x outside the span of U."""
    return float((x - U @ (U.T @ x)).norm())


def _cross(gap: Tensor, S1: Tensor, S2: Tensor) -> Tensor:
    L2, regular = cholesky(S2)
    distance = squared_distance(L2, gap)
    trace = torch.cholesky_solve(S1, L2).diagonal(dim1=-2, dim2=-1).sum(-1)
    out = 0.5 * (S1.shape[-1] * LOG_2PI + log_determinant(L2) + trace + distance)
    for i in (~regular).nonzero().flatten().tolist():
        out[i] = _cross_on_support(gap[i], S1[i], S2[i])
    return out


def _cross_on_support(gap: Tensor, S1: Tensor, S2: Tensor) -> float:
    units = unit_scale(S2)
    gap, S1, S2 = gap / units, rescale(S1, units), rescale(S2, units)
    values, axes, inside = support(S2, "the second covariance")
    if bool(inside.all()):
        spread = ((axes.T @ S1 @ axes).diagonal() / values).sum() + ((axes.T @ gap) ** 2 / values).sum()
        return 0.5 * float(len(values) * LOG_2PI + values.log().sum() + 2 * units.log().sum() + spread)
    outer = axes[:, ~inside]
    beyond = (outer.T @ S1 @ outer).trace() + (outer.T @ gap).square().sum()
    return math.inf if float(beyond) > 1e-12 * float(S1.trace() + gap.square().sum()) else -math.inf


def linear_image(
    mu: Float[Tensor, "*batch _d"], S: Float[Tensor, "*batch2 _d _d"], L: Float[Tensor, "*batch3 m _d"]
) -> tuple[Float[Tensor, "*out m"], Float[Tensor, "*out2 m m"]]:
    """Mean L mu and covariance L S L^T of L x, L of any shape m x d; singular if m exceeds the rank of L S."""
    S = covariance(S)
    if L.shape[-1] != S.shape[-1]:
        raise ShapeError(f"a map of {L.shape[-1]} columns does not fit a covariance of side {S.shape[-1]}")
    out = L @ S @ L.mT
    return (L @ vector(mu, S).unsqueeze(-1)).squeeze(-1), (out + out.mT) / 2


def entropy_change(L: Float[Tensor, "*batch d _d"]) -> Float[Tensor, "*batch"]:
    """H(L x) - H(x) = log|det L|, the sum of the logs of the singular values; -inf where L is singular.

    In [-inf, inf), whatever law x has. Positive where L enlarges volumes, whatever the sign of its determinant.
    """
    if L.shape[-1] != L.shape[-2]:
        raise ShapeError(
            f"entropy changes by log|det L| for square L, found {tuple(L.shape)}; use linear_image instead"
        )
    change: Tensor = torch.linalg.slogdet(L).logabsdet
    return change
