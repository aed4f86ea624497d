r"""What a random change of a matrix does to its column span.

W is d x p with singular values s_i, E a Gaussian matrix scaled to |E|_F = eta, and W + E is what W becomes. Both are
turned at will without changing anything that is asked here, so in the singular bases of W

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

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.threads import one_thread


@dataclass(frozen=True)
class PerturbedSpan:
    """Principal angles [draw, k] of the span to what it was, ascending, and the singular values [draw, p] after."""

    angles: Float[Tensor, "draw k"]
    singular_values: Float[Tensor, "draw p"]


def _checked(s: Tensor, d: int, size: float, rank: tuple[int, int]) -> None:
    if s.ndim != 1 or not 1 <= s.shape[0] <= d:
        raise ShapeError(f"singular values need shape [p] with 1 <= p <= d = {d}, found {tuple(s.shape)}")
    if not all(1 <= r <= s.shape[0] for r in rank):
        raise ShapeError(f"ranks before and after need to lie in 1..{s.shape[0]}, found {rank[0]} and {rank[1]}")
    if not 0 < size < float("inf"):
        raise ShapeError(f"the size of a perturbation is a positive norm, found {size}")


def _lower_part(draws: int, d: int, p: int, generator: torch.Generator) -> Tensor:
    """[draw, min(p, d - p), p] with the Gram matrix of a standard normal [d - p, p]."""
    rows = d - p
    if rows <= p:
        return torch.randn(draws, rows, p, generator=generator, dtype=torch.float64)
    above = torch.randn(draws, p, p, generator=generator, dtype=torch.float64).triu(1)
    degrees = torch.arange(rows, rows - p, -1, dtype=torch.float64)
    # A chi-squared variable is twice a gamma variable of half its degrees of freedom.
    squares = 2 * torch._standard_gamma((degrees / 2).expand(draws, p), generator=generator)
    return above + torch.diag_embed(squares.sqrt())


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
    _checked(s, d, size, rank)
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
