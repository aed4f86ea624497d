r"""Principal angles of random subspaces, and of a span with what a random change makes of it, drawn at little cost.

Random subspaces. For a fixed q-dimensional V and a Haar p-dimensional U = span(G), G [d, p] Gaussian, only the split of
G's rows into the q along V and the d - q across matters: with the Wishart matrices W_1 (q degrees of freedom) and W_2
(d - q), both p x p, the squared cosines are the eigenvalues of (W_1 + W_2)^-1 W_1. Steps:

1. reduce to p <= q and p + q <= d: swap, and if p + q > d set aside the p + q - d exact zeros and go to complements;
2. W_1 = L_1 L_1^T and W_2 = L_2 L_2^T by Bartlett: normals below the diagonal, square roots of chi-squares on it;
3. C C^T = W_1 + W_2 by Cholesky, cos^2 = eigenvalues of C^-1 W_1 C^-T.

A draw costs O(p^3) whatever d is. The same (d, p, q, draws, seed) always gives the same angles, and they are cached.

Random changes. W is d x p with singular values s_i, E a Gaussian matrix scaled to |E|_F = eta, and W + E is what W
becomes. Both are turned at will without changing anything that is asked here, so in the singular bases of W

    W + E = [ diag(s) + E_1 ]   p rows, the old span among them
            [       E_2     ]   d - p rows

and of E_2 only E_2^T E_2 matters: it is replaced by its triangular factor, whose diagonal is chi distributed and whose
other entries are normal (Bartlett 1933). A draw then costs a decomposition of 2p x p, whatever d is.

Without draws: E_2^T E_2 is about sigma^2 (d - p) I and the whole Gram matrix about diag(s^2) + sigma^2 d I with
sigma^2 = eta^2 / (d p), so that

    sin^2 theta_i = sigma^2 (d - p) / (s_i^2 + sigma^2 d).

For small changes this is the first-order sigma^2 (d - p) / s_i^2 (Stewart and Sun 1990, section V.2), and for changes
that drown W it sums to p - p^2/d, what two unrelated spans have.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.distances import grassmann_distance
from headspan.threads import one_thread

# Draws are made in blocks of so many matrix entries: few calls for small matrices, little memory for large ones.
_BLOCK_ENTRIES = 2**20


@dataclass(frozen=True)
class AngleNull:
    """What the null gives for the angles of a p- and a q-dimensional subspace of R^d.

    Parameters
    ----------
    angle_mean, angle_sd
        [min(p, q)], float64: mean and standard deviation of each principal angle, ascending, radians.
    grassmann_mean, grassmann_sd
        Mean and standard deviation of the Grassmann distance.
    draws
        Size of the sample: the mean's own standard error is sd / sqrt(draws).
    """

    angle_mean: Float[Tensor, " k"]
    angle_sd: Float[Tensor, " k"]
    grassmann_mean: float
    grassmann_sd: float
    draws: int


def _bartlett(size: int, freedom: int, draws: int, generator: torch.Generator, upper: bool = False) -> Tensor:
    """[draws, size, size]: triangular factors of Wishart matrices with `freedom` >= size degrees of freedom.

    L with W = L L^T, or with `upper` R with W = R^T R.
    """
    normals = torch.randn(draws, size, size, generator=generator, dtype=torch.float64)
    # A chi-square with f degrees of freedom is twice a Gamma of shape f / 2.
    shapes = (freedom - torch.arange(size, dtype=torch.float64)) / 2
    gammas = torch._standard_gamma(shapes.expand(draws, size).contiguous(), generator=generator)
    return (normals.triu(1) if upper else normals.tril(-1)) + torch.diag_embed((2 * gammas).sqrt())


@lru_cache(maxsize=256)  # SmolLM2 in four bits has 83 pairs of ranks, each asked for twice
@one_thread()
def _sample(d: int, p: int, q: int, draws: int, seed: int) -> Tensor:
    """[draws, p] ascending angles for p <= q and p + q <= d."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    block = max(1, _BLOCK_ENTRIES // p**2)
    for start in range(0, draws, block):
        count = min(block, draws - start)
        along, across = (_bartlett(p, freedom, count, generator) for freedom in (q, d - q))
        C = torch.linalg.cholesky(along @ along.mT + across @ across.mT)
        half = torch.linalg.solve_triangular(C, along, upper=False)
        cos2 = torch.linalg.eigvalsh(half @ half.mT).flip(-1)
        # Rounding of an eigenvalue near 0 or 1, far below the sampling error of anything made from the draws.
        parts.append(torch.acos(cos2.clamp(0, 1).sqrt()))
    return torch.cat(parts)


def random_principal_angles(d: int, p: int, q: int, draws: int, seed: int = 0) -> Float[Tensor, "draws k"]:
    """Independent draws of the principal angles of two Haar subspaces.

    Parameters
    ----------
    d, p, q
        Dimensions of the space and of the subspaces, 1 <= p, q <= d.
    draws, seed
        Number of independent draws, at least 1, and the seed that fixes them.

    Returns
    -------
    Tensor
        [draws, min(p, q)], float64 on the CPU, each row ascending in [0, pi/2]; p + q - d exact zeros if p + q > d.

    References
    ----------
    Muirhead (1982), Aspects of multivariate statistical theory, Theorems 3.2.14 (Bartlett) and 3.3.1 (Beta);
    Absil, Edelman and Koev (2006), On the largest principal angle between random subspaces.
    """
    if not (1 <= p <= d and 1 <= q <= d and draws >= 1):
        raise ArgumentError(
            f"random angles need 1 <= p, q <= d and draws >= 1, found d={d}, p={p}, q={q}, draws={draws}"
        )
    p, q = min(p, q), max(p, q)
    forced = max(0, p + q - d)
    if forced:
        p, q = d - q, d - p
    angles = _sample(d, p, q, draws, seed) if p else torch.zeros(draws, 0, dtype=torch.float64)
    # `pad` copies, so that nobody can write into the cached sample.
    return torch.nn.functional.pad(angles, (forced, 0))


@lru_cache(maxsize=256)
def angle_null(d: int, p: int, q: int, draws: int = 256, seed: int = 0) -> AngleNull:
    """Mean and standard deviation of each principal angle and of the Grassmann distance under the null.

    Parameters
    ----------
    d, p, q, draws, seed
        As for `random_principal_angles`; at least 2 draws.

    Returns
    -------
    AngleNull
        For p = q = 128 and d = 768 the Grassmann distance is 13.82.
    """
    if draws < 2:
        raise ArgumentError(f"a standard deviation needs at least 2 draws, found {draws}")
    angles = random_principal_angles(d, p, q, draws, seed)
    distance = grassmann_distance(angles)
    return AngleNull(angles.mean(0), angles.std(0), float(distance.mean()), float(distance.std()), draws)


@dataclass(frozen=True)
class PerturbedSpan:
    """Principal angles [draw, k] of the span to what it was, ascending, and the singular values [draw, p] after."""

    angles: Float[Tensor, "draw k"]
    singular_values: Float[Tensor, "draw p"]


def _require_span(s: Tensor, d: int, size: float, rank: tuple[int, int]) -> None:
    if s.ndim != 1 or not 1 <= s.shape[0] <= d:
        raise ShapeError(f"singular values need shape [p] with 1 <= p <= d = {d}, found {tuple(s.shape)}")
    if not all(1 <= r <= s.shape[0] for r in rank):
        raise ArgumentError(f"ranks before and after need to lie in 1..{s.shape[0]}, found {rank[0]} and {rank[1]}")
    if not 0 < size < float("inf"):
        raise ArgumentError(f"the size of a perturbation is a positive norm, found {size}")


def _lower_part(draws: int, d: int, p: int, generator: torch.Generator) -> Tensor:
    """[draw, min(p, d - p), p] with the Gram matrix of a standard normal [d - p, p]."""
    rows = d - p
    if rows <= p:
        return torch.randn(draws, rows, p, generator=generator, dtype=torch.float64)
    return _bartlett(p, rows, draws, generator, upper=True)


@one_thread()
def random_perturbation(
    s: Float[Tensor, " p"], d: int, size: float, draws: int, generator: torch.Generator, rank: tuple[int, int]
) -> PerturbedSpan:
    """Draws of W + E, with E Gaussian of Frobenius norm `size`.

    Parameters
    ----------
    s
        The p singular values of W, d x p with p <= d, descending.
    d, size
        Height of W, and |E|_F > 0.
    draws, generator
        How many, and from where.
    rank
        How many leading directions count: of W, the first, and of W + E, the second; p and p for full rank.

    Returns
    -------
    PerturbedSpan
        angles [draw, min(rank)] in [0, pi/2], good to 1e-8; singular values [draw, p], descending.

    References
    ----------
    Bartlett (1933), On the theory of statistical regression; Stewart and Sun (1990), Matrix Perturbation Theory.
    """
    _require_span(s, d, size, rank)
    p, (before, after) = s.shape[0], rank
    upper = torch.randn(draws, p, p, generator=generator, dtype=torch.float64)
    lower = _lower_part(draws, d, p, generator)
    noise = torch.cat([upper, lower], dim=-2)
    scaled = noise * (size / torch.linalg.matrix_norm(noise))[:, None, None]
    scaled[:, :p] += torch.diag(s.to(torch.float64))
    if after == p:
        basis, triangle = torch.linalg.qr(scaled)
        values = torch.linalg.svdvals(triangle)
    else:
        left, values, _ = torch.linalg.svd(scaled, full_matrices=False)
        basis = left[..., :after]
    # Directions beyond the old span's dimension have a sine of 1; they sort last and are no angles of the pair.
    sines = torch.linalg.svdvals(basis[:, before:]).flip(-1) if basis.shape[-2] > before else basis.new_zeros(draws, 0)
    missing = max(0, after - sines.shape[-1])
    sines = torch.nn.functional.pad(sines, (missing, 0))[:, : min(before, after)]
    return PerturbedSpan(torch.asin(sines.clamp(max=1.0)), values)


def expected_perturbation_sines(
    s: Float[Tensor, "*batch p"], d: int, size: Float[Tensor, "*batch"], rank: tuple[int, int] | None = None
) -> Float[Tensor, "*batch k"]:
    """The sines of the angles that a random change of norm `size` turns a span by, without draws.

    sin^2 theta_i = sigma^2 (d - m) / (s_i^2 + sigma^2 d) for the min(rank) largest s_i, sigma^2 = size^2 / (d p), and m
    the larger rank (p by default).

    Returns
    -------
    Tensor
        [..., min(rank)] in [0, 1], ascending. The root of their summed squares is within 4 % of the mean chordal
        distance of draws where d >= 8 p, for changes of any size (1 % for small ones); sqrt(p - p^2/d) for unrelated
        spans.
    """
    p = s.shape[-1]
    smaller, larger = (p, p) if rank is None else (min(rank), max(rank))
    variance = (size.to(torch.float64) ** 2 / (d * p))[..., None]
    kept = s.to(torch.float64)[..., :smaller]
    squares = variance * (d - larger) / (kept**2 + variance * d)
    return torch.where(variance > 0, squares, torch.zeros_like(squares)).sqrt()
