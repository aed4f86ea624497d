"""Principal angles of random subspaces, drawn without drawing the subspaces.

For a fixed q-dimensional V and a Haar p-dimensional U = span(G), G [d, p] Gaussian, only the split of G's rows into
the q along V and the d - q across matters: with the Wishart matrices W_1 (q degrees of freedom) and W_2 (d - q),
both p x p, the squared cosines are the eigenvalues of (W_1 + W_2)^-1 W_1. Steps:

1. reduce to p <= q and p + q <= d: swap, and if p + q > d set aside the p + q - d exact zeros and go to complements;
2. W_1 = L_1 L_1^T and W_2 = L_2 L_2^T by Bartlett: normals below the diagonal, square roots of chi-squares on it;
3. C C^T = W_1 + W_2 by Cholesky, cos^2 = eigenvalues of C^-1 W_1 C^-T.

A draw costs O(p^3) whatever d is. The same (d, p, q, draws, seed) always gives the same angles, and they are cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.subspaces.distances import grassmann_distance
from headspan.threads import one_thread

# Draws are made in blocks of so many matrix entries: few calls for small matrices, little memory for large ones.
_BLOCK_ENTRIES = 2**20


@dataclass(frozen=True)
class AngleChance:
    """What chance gives for the angles of a p- and a q-dimensional subspace of R^d.

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


def _bartlett(size: int, freedom: int, draws: int, generator: torch.Generator) -> Tensor:
    """[draws, size, size]: lower Cholesky factors of Wishart matrices with `freedom` >= size degrees of freedom."""
    L = torch.randn(draws, size, size, generator=generator, dtype=torch.float64).tril(-1)
    # A chi-square with f degrees of freedom is twice a Gamma of shape f / 2.
    shapes = (freedom - torch.arange(size, dtype=torch.float64)) / 2
    gammas = torch._standard_gamma(shapes.expand(draws, size).contiguous(), generator=generator)
    return L + torch.diag_embed((2 * gammas).sqrt())


@lru_cache(maxsize=64)
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
        raise ShapeError(f"random angles need 1 <= p, q <= d and draws >= 1, found d={d}, p={p}, q={q}, draws={draws}")
    p, q = min(p, q), max(p, q)
    forced = max(0, p + q - d)
    if forced:
        p, q = d - q, d - p
    angles = _sample(d, p, q, draws, seed) if p else torch.zeros(draws, 0, dtype=torch.float64)
    # `pad` copies, so that nobody can write into the cached sample.
    return torch.nn.functional.pad(angles, (forced, 0))


@lru_cache(maxsize=256)
def angle_chance(d: int, p: int, q: int, draws: int = 256, seed: int = 0) -> AngleChance:
    """Mean and standard deviation of each principal angle and of the Grassmann distance by chance.

    Parameters
    ----------
    d, p, q, draws, seed
        As for `random_principal_angles`; at least 2 draws.

    Returns
    -------
    AngleChance
        For p = q = 128 and d = 768 the Grassmann distance is 13.82.
    """
    if draws < 2:
        raise ShapeError(f"a standard deviation needs at least 2 draws, found {draws}")
    angles = random_principal_angles(d, p, q, draws, seed)
    distance = grassmann_distance(angles)
    return AngleChance(angles.mean(0), angles.std(0), float(distance.mean()), float(distance.std()), draws)
