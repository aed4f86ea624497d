r"""Scores x^T C y: moments for Gaussian vectors, for vectors on spheres and under random weights, and bounds.

C = A B^T makes the score u . v with u = A^T x and v = B^T y; a head's W_QK comes in such factors, of d_head columns,
and is never formed (pass a `Factored`). With S_uv = Cov(u, v),

    E   = mu_u . mu_v + tr S_uv
    Var = tr(S_u S_v) + mu_u^T S_v mu_u + mu_v^T S_u mu_v  +  tr(S_uv S_uv) + 2 mu_v^T S_uv mu_u,

the last two terms only if x and y depend on each other. A token with itself is the case y = x. In terms of C the mean
holds tr(C Cov(y, x)): the cross-covariance enters transposed, which matters unless it or C is symmetric.

The score is a quadratic form z^T K z in z = (u, v), and has the cumulants

    kappa_r = 2^(r-1) (r-1)! [tr((K S)^r) + r mu^T K (S K)^(r-1) mu].

For independent x and y of mean 0 its excess kurtosis is 6 sum s^4 / (sum s^2)^2 over the singular values s of
S_x^1/2 C S_y^1/2: near normal for flat spectra, far from it (up to 6) for spiked ones.

For x uniform on the sphere of radius l in R^n: mean 0, Cov(x) = (l^2 / n) I. For a pair at a fixed cosine k, uniform
otherwise, unit vectors v and w have

    E[v_a v_c w_b w_d] = alpha d_ac d_bd + beta (d_ab d_cd + d_ad d_bc),
    alpha = (n + 1 - 2 k^2) / (n (n-1) (n+2)),   beta = (n k^2 - 1) / (n (n-1) (n+2)),

from which mean and variance of x^T C y follow for any C. With C random, of independent entries of variance s^2, and
vectors fixed, Cov(x^T C y, x'^T C y') = s^2 <x, x'> <y, y'>: no angle between x and y enters; that between two keys
does. A score is at most |C| |x| |y|; a bound with the cosine of x and y in it is false for every C but a multiple of
the identity (`cosine_bound_violations` looks for counterexamples).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.divergences import probabilities
from headspan.distributions.factors import covariance, vector
from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.factored import Factored
from headspan.subspaces.rank import require_finite

PEAK_2, PEAK_3 = 1 / math.sqrt(2 * math.pi), 0.5505882
"""Largest values of |x^2 - 1| phi(x) and |x^3 - 3 x| phi(x)."""


@dataclass(frozen=True)
class ScoreMoments:
    """Mean and variance of a score; skewness and excess kurtosis, 0 for a normal variable, NaN without variance.

    `departure` is the first term of Edgeworth's series for the largest difference to the normal distribution function:
    below 0.01 normality is a fair approximation, above 0.05 it is not.
    """

    mean: Float[Tensor, "*batch"]
    variance: Float[Tensor, "*batch"]
    skewness: Float[Tensor, "*batch"]
    excess_kurtosis: Float[Tensor, "*batch"]

    @property
    def departure(self) -> Float[Tensor, "*batch"]:
        """About sup |F - Phi|; in [0, inf), small values only are to be trusted."""
        return self.skewness.abs() / 6 * PEAK_2 + self.excess_kurtosis.abs() / 24 * PEAK_3


def score_moments(
    C: Float[Tensor, "*batch p q"] | Factored,
    mu_x: Float[Tensor, "*bx _p"],
    S_x: Float[Tensor, "*bsx _p _p"],
    mu_y: Float[Tensor, "*by _q"],
    S_y: Float[Tensor, "*bsy _q _q"],
    S_xy: Float[Tensor, "*bxy _p _q"] | None = None,
) -> ScoreMoments:
    """Moments of x^T C y for jointly Gaussian x and y; batch axes broadcast.

    Parameters
    ----------
    C
        The bilinear form, dense or in factors.
    mu_x, S_x, mu_y, S_y
        Means and covariances; singular ones are welcome.
    S_xy
        Cov(x, y); left out, x and y are independent.

    Returns
    -------
    ScoreMoments
        Variance >= 0. With iid entries of C of variance s^2 the mean over C is 0 and the variance s^2 E|x|^2 |y|^2.

    References
    ----------
    Isserlis (1918); Mathai and Provost (1992), Quadratic Forms in Random Variables, theorem 3.2.2.
    """
    A, B = _factors(C, S_x, S_y)
    mu_u, mu_v = _image(A, vector(mu_x, S_x)), _image(B, vector(mu_y, S_y))
    S_u, S_v = A.mT @ covariance(S_x) @ A, B.mT @ covariance(S_y) @ B
    if S_xy is None:
        S_uv = torch.zeros_like(S_u)
    elif S_xy.shape[-2:] == (S_x.shape[-1], S_y.shape[-1]):
        S_uv = A.mT @ S_xy @ B
    else:
        raise ShapeError(f"Cov(x, y) needs shape [..., {S_x.shape[-1]}, {S_y.shape[-1]}], found {tuple(S_xy.shape)}")
    return _inner_product_moments(mu_u, S_u, mu_v, S_v, S_uv)


def self_score_moments(
    C: Float[Tensor, "*batch p _p"] | Factored, mu: Float[Tensor, "*bx _p"], S: Float[Tensor, "*bsx _p _p"]
) -> ScoreMoments:
    """Moments of x^T C x: a token attending to itself. The mean is mu^T C mu + tr(C S)."""
    return score_moments(C, mu, S, mu, S, S)


def _factors(C: Tensor | Factored, S_x: Tensor, S_y: Tensor) -> tuple[Tensor, Tensor]:
    p, q = C.shape[-2:]
    if (p, q) != (S_x.shape[-1], S_y.shape[-1]):
        raise ShapeError(f"C of {p} x {q} does not fit covariances of sides {S_x.shape[-1]} and {S_y.shape[-1]}")
    if isinstance(C, Factored):
        return C.A, C.B
    return C, torch.eye(q, dtype=C.dtype, device=C.device)


def _image(A: Tensor, mu: Tensor) -> Tensor:
    return (A.mT @ mu.unsqueeze(-1)).squeeze(-1)


def _trace(M: Tensor) -> Tensor:
    return M.diagonal(dim1=-2, dim2=-1).sum(-1)


def _swap_halves(z: Tensor) -> Tensor:
    """J z: the halves of z's rows in each other's place."""
    return z.roll(z.shape[-2] // 2, dims=-2)


def _product(S: Float[Tensor, "*batch d _d"], z: Float[Tensor, "*front_batch d 1"]) -> Tensor:
    """S z. Axes of z in front of those of S become columns of one product, so that S is not copied for each of them."""
    front = z.shape[: max(0, z.ndim - S.ndim)]
    if not front:
        return S @ z
    columns = z.reshape(-1, *z.shape[len(front) : -1]).movedim(0, -1)
    product = (S @ columns).movedim(-1, 0)
    return product.reshape(*front, *product.shape[1:], 1)


def _inner_product_moments(mu_u: Tensor, S_u: Tensor, mu_v: Tensor, S_v: Tensor, S_uv: Tensor) -> ScoreMoments:
    """Moments of u . v = z^T K z with K = J / 2, where J exchanges u and v.

    The powers of 2 cancel: kappa_r = (r-1)!/2 tr((J S)^r) + r!/2 t^T (S J)^(r-2) S t with t = J mu, for r >= 2.
    """
    S_u, S_v, S_uv = torch.broadcast_tensors(S_u, S_v, S_uv)  # type: ignore[no-untyped-call]
    S = torch.cat([torch.cat([S_u, S_uv], -1), torch.cat([S_uv.mT, S_v], -1)], -2)
    mu_u, mu_v = torch.broadcast_tensors(mu_u, mu_v)  # type: ignore[no-untyped-call]
    t = torch.cat([mu_v, mu_u], -1).unsqueeze(-1)
    M = _swap_halves(S)
    square = M @ M
    traces = (_trace(square), (square * M.mT).sum((-1, -2)), (square * square.mT).sum((-1, -2)))
    lift, kappa = _product(S, t), []
    for r, trace in zip((2, 3, 4), traces, strict=True):
        kappa.append(math.factorial(r - 1) / 2 * trace + math.factorial(r) / 2 * (t * lift).sum((-1, -2)))
        lift = _product(S, _swap_halves(lift))
    variance = kappa[0].clamp(min=0)
    mean = ((mu_u * mu_v).sum(-1) + _trace(S_uv)).expand_as(variance)
    return ScoreMoments(mean, variance, kappa[1] / variance**1.5, kappa[2] / variance**2)


def score_covariance(
    C: Float[Tensor, "*batch p q"] | Factored,
    mu_x: Float[Tensor, "*bx _p"],
    S_x: Float[Tensor, "*bsx _p _p"],
    mu_y: Float[Tensor, "*by _q"],
    mu_w: Float[Tensor, "*bw _q"],
    S_yw: Float[Tensor, "*byw _q _q"],
) -> Float[Tensor, "*out"]:
    """Cov(x^T C y, x^T C w) for two keys y, w of one query x that is independent of both.

    tr(S_u S_yw) + mu_u^T S_yw mu_u + mu_y^T S_u mu_w with u = A^T x and the keys mapped by B; in (-inf, inf), and the
    variance of `score_moments` for w = y. Independent keys still share the query: what is left is mu_y^T S_u mu_w.
    """
    A, B = _factors(C, S_x, S_yw)
    mu_u, S_u, S_v = _image(A, vector(mu_x, S_x)), A.mT @ covariance(S_x) @ A, B.mT @ S_yw @ B
    first, second = _image(B, mu_y), _image(B, mu_w)
    forms = _form(mu_u, S_v, mu_u) + _form(first, S_u, second)
    return (S_u * S_v.mT).sum((-1, -2)) + forms


def _form(x: Tensor, S: Tensor, y: Tensor) -> Tensor:
    return (x.unsqueeze(-2) @ S @ y.unsqueeze(-1)).squeeze((-1, -2))


def mixture_score_moments(
    weights: Float[Tensor, "*batch k"], mean: Float[Tensor, "*batch k"], variance: Float[Tensor, "*batch k"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Mean and variance of a score that has each of k (mean, variance) with the given probabilities.

    The variance is the mean of the variances and the variance of the means: at least the smallest of the k.
    """
    weights = probabilities(weights, "a mixture's weights")
    middle = (weights * mean).sum(-1)
    return middle, (weights * (variance + (mean - middle.unsqueeze(-1)) ** 2)).sum(-1)


def sphere_score_moments(
    C: Float[Tensor, "*batch n _n"], cosine: float, radius_x: float = 1.0, radius_y: float = 1.0
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Mean and variance of x^T C y for x, y uniform on spheres at a fixed cosine.

    Parameters
    ----------
    C
        Square, fixed.
    cosine
        Of the angle between x and y, in [-1, 1]; 0 for random vectors of high dimension.
    radius_x, radius_y
        Lengths of x and y.

    Returns
    -------
    mean, variance
        (k l1 l2 / n) tr C, and >= 0; for C = I the variance is 0.
    """
    n = C.shape[-1]
    if C.shape[-2] != n or n < 2:
        raise ShapeError(f"pairs on spheres need a square C of side at least 2, found {tuple(C.shape)}")
    if not -1 <= cosine <= 1:
        raise ArgumentError(f"a cosine lies in [-1, 1], found {cosine}")
    require_finite(C, "C")
    trace, k2 = C.diagonal(dim1=-2, dim2=-1).sum(-1), cosine**2
    below = n * (n - 1) * (n + 2)
    alpha, beta = (n + 1 - 2 * k2) / below, (n * k2 - 1) / below
    squares, turned = C.square().sum((-1, -2)), (C * C.mT).sum((-1, -2))
    scale = radius_x * radius_y
    variance = alpha * squares + beta * (trace**2 + turned) - k2 * trace**2 / n**2
    return cosine * scale / n * trace, (scale**2 * variance).clamp(min=0)


def random_form_covariance(
    x: Float[Tensor, "*a p"],
    y: Float[Tensor, "*b q"],
    x2: Float[Tensor, "*c p"],
    y2: Float[Tensor, "*d q"],
    sigma: float = 1.0,
) -> Float[Tensor, "*out"]:
    """Cov(x^T C y, x2^T C y2) over C with independent entries of standard deviation sigma: s^2 <x, x2> <y, y2>.

    For one pair the variance s^2 |x|^2 |y|^2, whatever the angle between x and y. Of the mean vectors of two sets of
    tokens it is the variance of the mean score, s^2 |mu_X|^2 |mu_Y|^2.
    """
    return sigma**2 * (x * x2).sum(-1) * (y * y2).sum(-1)


def _length(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return length


def score_bound(
    C: Float[Tensor, "*batch p q"] | Factored, x: Float[Tensor, "*bx p"], y: Float[Tensor, "*by q"]
) -> Float[Tensor, "*out"]:
    """|C| |x| |y|, the spectral norm times both lengths: no |x^T C y| is larger; attained at the top singular pair."""
    norm: Tensor = C.singular_values()[..., 0] if isinstance(C, Factored) else torch.linalg.matrix_norm(C, ord=2)
    return norm * _length(x) * _length(y)


def symmetric_score_bound(
    C: Float[Tensor, "*batch n _n"], x: Float[Tensor, "*bx n"], y: Float[Tensor, "*by n"]
) -> Float[Tensor, "*out"]:
    """[|M + m| |cos(x, y)| + (M - m)] / 2 times |x| |y| for symmetric C with eigenvalues in [m, M].

    The cosine may enter here, beside a term that does not see it: 0 only if C is a multiple of the identity.
    """
    values: Tensor = torch.linalg.eigvalsh(C)
    low, high = values[..., 0], values[..., -1]
    return ((high + low).abs() * (x * y).sum(-1).abs() + (high - low) * _length(x) * _length(y)) / 2


@dataclass(frozen=True)
class CosineViolations:
    """How often |<W_q x, W_k y>| exceeds |W_q| |W_k| |x| |y| |cos(x, y)| (share) and |W_q^T W_k| |x| |y| (never)."""

    share: float
    corrected_share: float
    worst_ratio: float


def cosine_bound_violations(n: int, draws: int, seed: int) -> CosineViolations:
    """Counterexamples to the bound with a cosine among random weights and vectors of dimension n.

    Returns
    -------
    CosineViolations
        share in [0, 1], 0 for n = 1 where both bounds are equal; worst_ratio, the score over the false bound.
    """
    if min(n, draws) < 1:
        raise ArgumentError(f"a search needs a dimension and draws of at least 1, found n={n}, draws={draws}")
    generator = torch.Generator().manual_seed(seed)
    W_q, W_k = torch.randn(2, draws, n, n, generator=generator, dtype=torch.float64) / n**0.5
    x, y = torch.randn(2, draws, n, generator=generator, dtype=torch.float64)
    C = W_q.mT @ W_k
    score = (x.unsqueeze(-2) @ C @ y.unsqueeze(-1)).squeeze((-1, -2)).abs()
    norms = torch.linalg.matrix_norm(W_q, ord=2) * torch.linalg.matrix_norm(W_k, ord=2)
    printed = norms * (x * y).sum(-1).abs()
    valid = score_bound(C, x, y)
    return CosineViolations(
        share=float((score > printed * (1 + 1e-12)).double().mean()),
        corrected_share=float((score > valid * (1 + 1e-12)).double().mean()),
        worst_ratio=float((score / printed).max()),
    )
