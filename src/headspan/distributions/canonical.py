r"""Mutual information of jointly Gaussian vectors, through their canonical correlations.

Whitened on their supports, x and y have the cross-covariance M = Sxx^-1/2 Sxy Syy^-1/2, whose singular values are the
canonical correlations rho_k in [0, 1] (Hotelling 1936), and

    I(x; y) = -1/2 sum_k log(1 - rho_k^2).

Nothing here divides by a determinant, so covariances of reduced rank, such as those of what a head reads, are as good
as any: the information between what varies is what is returned. It is +inf where one vector fixes a direction of the
other. Any invertible map of x or of y leaves it; a map that loses rank can only lower it.

Total correlation is the same for many parts: -1/2 log det of the covariance whitened within each part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headspan.distributions.factors import (
    cholesky,
    common_batch,
    covariance,
    in_cache,
    log_determinant,
    rescale,
    support,
    unit_scale,
    whitening,
)
from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.rank import require_finite

CERTAIN = 1e-12
"""A share 1 - rho^2 of variance left, below which y is taken to be fixed by x."""


def canonical_correlations(
    Sxx: Float[Tensor, "*first p _p"], Syy: Float[Tensor, "*second q _q"], Sxy: Float[Tensor, "*third _p _q"]
) -> Float[Tensor, "*out k"]:
    """The min(p, q) canonical correlations of x and y, descending.

    Parameters
    ----------
    Sxx, Syy
        Covariances of x and y; may be singular.
    Sxy
        E[(x - mean)(y - mean)^T].

    Returns
    -------
    Tensor
        In [0, 1]; 0 for directions without spread. Under the null (independent x and y, estimated from N samples) the
        squares are about (p + q) / N.

    References
    ----------
    Hotelling (1936), Relations between two sets of variates.
    """
    batch, rows = _vector_pairs(Sxx, Syy, Sxy)
    found = in_cache(_correlations, *rows)
    return found.reshape(*batch, found.shape[-1])


def mutual_information(
    Sxx: Float[Tensor, "*first p _p"], Syy: Float[Tensor, "*second q _q"], Sxy: Float[Tensor, "*third _p _q"]
) -> Float[Tensor, "*out"]:
    """I(x; y) of jointly Gaussian x and y, in nats; batch axes broadcast.

    Parameters
    ----------
    Sxx, Syy, Sxy
        As of `canonical_correlations`.

    Returns
    -------
    Tensor
        In [0, inf]; 0 for independent vectors; inf where a direction of one is fixed by the other. From N samples of
        independent vectors it comes out near p q / (2 N) instead (`estimates`).

    References
    ----------
    Cover and Thomas (2006), Elements of Information Theory, section 8.5.
    """
    batch, rows = _vector_pairs(Sxx, Syy, Sxy)
    return in_cache(_information, *rows).reshape(batch)


def _vector_pairs(Sxx: Tensor, Syy: Tensor, Sxy: Tensor) -> tuple[torch.Size, list[Tensor]]:
    Sxx, Syy = covariance(Sxx, "the covariance of x"), covariance(Syy, "the covariance of y")
    if Sxy.shape[-2:] != (Sxx.shape[-1], Syy.shape[-1]):
        raise ShapeError(
            f"the cross-covariance needs shape [..., {Sxx.shape[-1]}, {Syy.shape[-1]}], found {tuple(Sxy.shape)}"
        )
    require_finite(Sxy, "the cross-covariance")
    return common_batch((Sxx, 2), (Syy, 2), (Sxy, 2))


def _correlations(Sxx: Tensor, Syy: Tensor, Sxy: Tensor) -> Tensor:
    M = whitening(Sxx, "the covariance of x").mT @ Sxy @ whitening(Syy, "the covariance of y")
    rho: Tensor = torch.linalg.svdvals(M)
    excess = float(rho.max()) - 1
    if excess > 1e-6:
        raise ArgumentError(
            f"the joint covariance of x and y is not positive semidefinite: found a correlation of {1 + excess:.6g}"
        )
    return rho.clamp(max=1)


def _information(Sxx: Tensor, Syy: Tensor, Sxy: Tensor) -> Tensor:
    if Sxx.shape[-1] > Syy.shape[-1]:
        Sxx, Syy, Sxy = Syy, Sxx, Sxy.mT
    Lx, regular_x = cholesky(Sxx)
    Ly, regular_y = cholesky(Syy)
    X = torch.linalg.solve_triangular(Lx, Sxy, upper=False)
    return _from_factors(X, Ly, regular_x & regular_y, Sxx, Syy, Sxy)


def information_from_factors(
    Lx: Float[Tensor, "p p"],
    Ly: Float[Tensor, "n q q"],
    regular: Bool[Tensor, " n"],
    Sxx: Float[Tensor, "p p"],
    Syy: Float[Tensor, "n q q"],
    Sxy: Float[Tensor, "n p q"],
) -> Float[Tensor, " n"]:
    """I(x; y_j) of one x with many y_j, whose covariances are factored already (`factors.cholesky`).

    `regular` says where both factors are to be trusted.
    """
    inverse = torch.linalg.solve_triangular(Lx, torch.eye(len(Lx), dtype=Lx.dtype, device=Lx.device), upper=False)

    def piece(Ly: Tensor, regular: Tensor, Syy: Tensor, Sxy: Tensor) -> Tensor:
        return _from_factors(inverse @ Sxy, Ly, regular, Sxx.expand(len(Sxy), *Sxx.shape), Syy, Sxy)

    return in_cache(piece, Ly, regular, Syy, Sxy)


def _from_factors(X: Tensor, Ly: Tensor, sure: Tensor, Sxx: Tensor, Syy: Tensor, Sxy: Tensor) -> Tensor:
    """With X = Lx^-1 Sxy: |Syy| / |Syy - X^T X| = prod 1 / (1 - rho^2), y's volume before and after x is known."""
    left, regular = cholesky(torch.baddbmm(Syy, X.mT, X, alpha=-1))
    ratio = left.diagonal(dim1=-2, dim2=-1) / Ly.diagonal(dim1=-2, dim2=-1)
    out = (-ratio.log().sum(-1)).clamp(min=0)
    # Close to certainty the difference has no digits left; there the correlations themselves decide.
    open_ = ~(regular & sure & (ratio.amin(-1) > 1e-4))
    if bool(open_.any()):
        missing = (1 - _correlations(Sxx[open_], Syy[open_], Sxy[open_]).square()).clamp(min=0)
        out[open_] = -0.5 * torch.where(missing > CERTAIN, missing, 0.0).log().sum(-1)
    return out


def total_correlation(S: Float[Tensor, "*batch d _d"], sizes: Sequence[int] | None = None) -> Float[Tensor, "*batch"]:
    """sum_i H(x_i) - H(x) of a Gaussian x in parts: how far from independent the parts are, in nats.

    Parameters
    ----------
    S
        Covariance of all parts, in order.
    sizes
        Dimensions of the parts, which add up to d; by default every coordinate is a part.

    Returns
    -------
    Tensor
        In [0, inf]; 0 for independent parts, inf where parts fix one another. For two parts the mutual information.

    References
    ----------
    Watanabe (1960), Information theoretical analysis of multivariate correlation.
    """
    S = covariance(S)
    d = S.shape[-1]
    sizes = [1] * d if sizes is None else list(sizes)
    if sum(sizes) != d or min(sizes) < 1:
        raise ArgumentError(f"sizes of parts need to be positive and add up to {d}, found {sizes}")
    batch, rows = common_batch((S, 2))
    return in_cache(lambda part: _total(part, sizes), *rows).reshape(batch)


def _total(S: Tensor, sizes: Sequence[int]) -> Tensor:
    L, regular = cholesky(S)
    blocks = [S[:, i - n : i, i - n : i] for n, i in zip(sizes, torch.tensor(sizes).cumsum(0).tolist(), strict=True)]
    out = (0.5 * (sum(log_determinant(cholesky(b)[0]) for b in blocks) - log_determinant(L))).clamp(min=0)
    if not bool(regular.all()):
        pick = ~regular
        W = [whitening(block[pick]) for block in blocks]
        full = torch.stack([torch.block_diag(*parts) for parts in zip(*W, strict=True)])  # type: ignore[no-untyped-call]
        support(rescale(S[pick], unit_scale(S[pick])), "the covariance of all parts")
        values = torch.linalg.eigvalsh(full.mT @ S[pick] @ full)
        # Directions without spread in their own part are rows of 0: as many as eigenvalues that say nothing.
        idle = (full.abs().amax(-2) == 0).sum(-1)
        place = torch.arange(S.shape[-1]).expand_as(values) < idle.unsqueeze(-1)
        kept = torch.where(place, 1.0, torch.where(values > CERTAIN, values, 0.0))
        out[pick] = (-0.5 * kept.log().sum(-1)).clamp(min=0)
    return out
