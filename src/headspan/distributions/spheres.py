r"""Scores on spheres and under random weights, and what bounds a score.

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

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.subspaces.factored import Factored
from headspan.subspaces.precision import require_finite


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
        raise ShapeError(f"a cosine lies in [-1, 1], found {cosine}")
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
        raise ShapeError(f"a search needs a dimension and draws of at least 1, found n={n}, draws={draws}")
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
