r"""Moments of Gaussians after ReLU and after LayerNorm.

With a = mu / sigma, Phi and phi the standard normal distribution and density,

    E max(0, x)   = sigma (a Phi(a) + phi(a)),
    Var max(0, x) = sigma^2 ((1 + a^2) Phi(a) + a phi(a)) - mean^2.

For two jointly Gaussian coordinates the derivative of E max(0, x) max(0, y) in the correlation is the bivariate
distribution, whose own derivative is the bivariate density (Plackett 1954, Price 1958). Integrated back from
correlation 0, with r = sin w,

    Cov / (s_x s_y) = rho Phi(a) Phi(b) + int_0^asin(rho) (rho - sin w) e(w) dw / 2 pi,
    e(w) = exp(-(a^2 - 2 a b sin w + b^2) / (2 cos^2 w)):

one smooth integral and no difference of large terms; Gauss and Legendre's 48 points give it to rounding.

LayerNorm removes the mean of a token's coordinates and divides by their root mean square, so tokens land on the sphere
of radius sqrt d across the diagonal. Isotropic Gaussians get the covariance d / (d - 1) (I - 11^T / d) exactly. Others
are approximated by a division by the expected root mean square, which keeps E |y|^2 = d exact.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.rank import require_finite

_POINTS = 48


def _spread(variance: Tensor) -> Tensor:
    require_finite(variance, "variances")
    if bool((variance < 0).any()):
        raise ArgumentError(f"a variance needs to be at least 0, found {float(variance.min()):.3g}")
    return variance.double().sqrt()


def _require_moments(mean: Tensor, covariance: Tensor) -> None:
    if covariance.shape[-1] != mean.shape[-1]:
        raise ShapeError(f"mean and covariance need one size, found {mean.shape[-1]} and {covariance.shape[-1]}")
    require_finite(mean, "means")
    require_finite(covariance, "covariances")


def _density(a: Tensor) -> Tensor:
    return (-a * a / 2).exp() / math.sqrt(2 * math.pi)


def _standard_mean(mean: Tensor, sd: Tensor) -> Tensor:
    """mu / sigma; a constant is infinitely far from 0 on its side, and 0 counts as rectified away."""
    far = torch.where(mean > 0, 40.0, -40.0).to(torch.float64)
    return torch.where(sd > 0, mean / torch.where(sd > 0, sd, 1.0), far).clamp(-40.0, 40.0)


def rectified_mean(mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """E max(0, x) of Gaussian x; >= max(0, mean), sigma / sqrt(2 pi) at mean 0. A variance of 0 gives max(0, mean)."""
    require_finite(mean, "means")
    mean, sd = mean.double(), _spread(variance)
    a = _standard_mean(mean, sd)
    return torch.where(sd > 0, mean * torch.special.ndtr(a) + sd * _density(a), mean.clamp(min=0))


def rectified_variance(mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Var max(0, x) of Gaussian x; in [0, variance], (1 - 1 / pi) / 2 of it at mean 0."""
    require_finite(mean, "means")
    sd = _spread(variance)
    a = _standard_mean(mean.double(), sd)
    share = torch.special.ndtr(a)
    first = a * share + _density(a)
    # (1 + a^2) Phi + a phi - first^2, written so that large a does not cancel: Phi (1 - Phi) a^2 is what is left of it.
    left = share + a * a * share * torch.special.ndtr(-a) + a * _density(a) * (1 - 2 * share) - _density(a).square()
    return sd.square() * torch.where(first > 0, left.clamp(0, 1), 0.0)


def rectified_covariance(
    mean: Float[Tensor, "*batch n"], covariance: Float[Tensor, "*batch m m"]
) -> Float[Tensor, "*batch n n"]:
    """Covariance of max(0, x_i) and max(0, x_j) for jointly Gaussian x, any means.

    Parameters
    ----------
    mean, covariance
        [..., n] and [..., n, n], symmetric with correlations in [-1, 1]; coordinates of variance 0 stay constant.

    Returns
    -------
    Tensor
        Symmetric, of the sign of the correlation, at most that of x in size. At mean 0 and unit variances it is the
        arc-cosine kernel [sqrt(1 - rho^2) + rho (pi - acos rho)] / (2 pi) - 1 / (2 pi); 0 for independent coordinates.

    References
    ----------
    Cho and Saul (2009), Kernel methods for deep learning, for mean 0; Plackett (1954), A reduction formula for normal
    multivariate integrals, for the derivative.
    """
    _require_moments(mean, covariance)
    sd = _spread(covariance.diagonal(dim1=-2, dim2=-1))
    scale = sd[..., :, None] * sd[..., None, :]
    rho = torch.where(scale > 0, covariance.double() / torch.where(scale > 0, scale, 1.0), 0.0)
    if bool((rho.abs() > 1 + 1e-9).any()):
        raise ArgumentError(
            f"correlations need to lie in [-1, 1], found {float(rho.abs().max()):.6g}; not a covariance"
        )
    rho = rho.clamp(-1, 1)
    a = _standard_mean(mean.double(), sd)
    a, b = a[..., :, None], a[..., None, :]
    found = scale * (rho * torch.special.ndtr(a) * torch.special.ndtr(b) + _plackett(a, b, rho))
    own = rectified_variance(mean, covariance.diagonal(dim1=-2, dim2=-1))
    return torch.where(torch.eye(mean.shape[-1], dtype=torch.bool), own[..., None, :], found)


def _plackett(a: Tensor, b: Tensor, rho: Tensor) -> Tensor:
    """The module's integral, for every pair."""
    places, weights = np.polynomial.legendre.leggauss(_POINTS)
    end = rho.asin()
    total = torch.zeros_like(rho)
    for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
        w = end * (1 + place) / 2
        # (a^2 - 2 a b sin w + b^2) / cos^2 w as a sum of squares: nothing cancels near correlation 1 or -1.
        sine, cosine = w.sin(), w.cos().clamp(min=1e-150)
        size = ((a - b * sine) / cosine).square() + b.square()
        total = total + weight * (rho - sine) * (-size / 2).exp()
    return total * end / (4 * math.pi)


def layer_norm(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """Tokens less their mean, over their root mean square; |y|^2 = d. A token of equal coordinates becomes 0."""
    if x.shape[-1] < 2:
        raise ShapeError(f"LayerNorm needs at least 2 coordinates, found {x.shape[-1]}")
    require_finite(x, "tokens")
    x = x - x.mean(-1, keepdim=True)
    size = x.square().mean(-1, keepdim=True).sqrt()
    return torch.where(size > 0, x / torch.where(size > 0, size, 1.0), 0.0)


def layer_norm_moments(
    mean: Float[Tensor, "*batch d"], covariance: Float[Tensor, "*batch m m"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d d"]]:
    """Mean and covariance of a Gaussian token after LayerNorm, to leading order in the spread of its length.

    Both are orthogonal to the diagonal, and |mean|^2 + trace of covariance = d exactly. Exact for isotropic tokens;
    else the error is of the order of the relative variance of |x|^2, 2 tr(S^2) / (tr S)^2 for centered tokens.
    """
    _require_moments(mean, covariance)
    mean, covariance, d = mean.double(), covariance.double(), mean.shape[-1]
    mean = mean - mean.mean(-1, keepdim=True)
    covariance = covariance - covariance.mean(-1, keepdim=True)
    covariance = covariance - covariance.mean(-2, keepdim=True)
    size = (mean.square().sum(-1) + covariance.diagonal(dim1=-2, dim2=-1).sum(-1)) / d
    if bool((size <= 0).any()):
        raise ArgumentError(
            "LayerNorm needs tokens that vary across coordinates, found equal coordinates with probability 1"
        )
    return mean / size.sqrt()[..., None], covariance / size[..., None, None]
