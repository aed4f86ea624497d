r"""Extreme eigenvalues of a symmetric matrix that is known only by its products with vectors.

Lanczos with full reorthogonalisation: from a random start v_1, each step multiplies, removes the components along all
earlier vectors (twice, since once is not enough in floating point) and normalises. The eigenvalues of the small
tridiagonal matrix are Ritz values; those at both ends converge first. The residual |beta_m s_m| bounds the distance
from a Ritz value to the nearest eigenvalue. Power iteration would do for the largest in size, which may be negative;
here both ends come out, each with its error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Extremes:
    """Both ends of a spectrum: values, bounds on their distance to an eigenvalue, unit vectors [dimension]."""

    top: float
    top_error: float
    top_vector: Float[Tensor, " n"]
    bottom: float
    bottom_error: float
    bottom_vector: Float[Tensor, " n"]


def lanczos_extremes(product: Product, dimension: int, steps: int, generator: torch.Generator) -> Extremes:
    """The largest and smallest eigenvalue of a symmetric operator.

    Parameters
    ----------
    product
        v [dimension] float64 to A v.
    dimension, steps
        Size of A, and how many products to spend (fewer where the space is exhausted).
    generator
        Draws the start.

    Returns
    -------
    Extremes
        Ritz values, `top` at most the largest eigenvalue and `bottom` at least the smallest.

    References
    ----------
    Golub and Van Loan (2013), Matrix Computations, 10.1 and 10.3.
    """
    if dimension < 1 or steps < 1:
        raise ShapeError(f"Lanczos needs a dimension and steps of at least 1, found {dimension} and {steps}")
    start = torch.randn(dimension, generator=generator, dtype=torch.float64)
    basis, alphas, betas = [start / start.norm()], [], []
    for step in range(min(steps, dimension)):
        w = product(basis[step])
        alphas.append(float(w @ basis[step]))
        Q = torch.stack(basis)
        for _ in range(2):
            w = w - Q.T @ (Q @ w)
        beta = float(w.norm())
        betas.append(beta)
        if beta <= 1e-12 * max(abs(alphas[0]), 1e-300) or step + 1 == min(steps, dimension):
            break
        basis.append(w / beta)
    return _extremes(torch.stack(basis[: len(alphas)]), alphas, betas)


def _extremes(basis: Float[Tensor, "m n"], alphas: list[float], betas: list[float]) -> Extremes:
    T = torch.diag(torch.tensor(alphas, dtype=torch.float64))
    inner = torch.tensor(betas[: len(alphas) - 1], dtype=torch.float64)
    T = T + torch.diag(inner, 1) + torch.diag(inner, -1)
    values, vectors = torch.linalg.eigh(T)
    residual = betas[len(alphas) - 1] * vectors[-1].abs()
    ritz = vectors.T @ basis
    return Extremes(float(values[-1]), float(residual[-1]), ritz[-1], float(values[0]), float(residual[0]), ritz[0])


def hutchinson_trace(product: Product, dimension: int, draws: int, generator: torch.Generator) -> tuple[float, float]:
    """The trace of a symmetric operator, E[z^T A z] over random signs z, and its standard error.

    Parameters
    ----------
    product, dimension
        As for `lanczos_extremes`.
    draws, generator
        How many sign vectors (at least 2, so that there is an error), and their source.

    Returns
    -------
    tuple
        The mean and the standard error of the mean; the error is 0 for a diagonal operator.

    References
    ----------
    Hutchinson (1990), A stochastic estimator of the trace of the influence matrix.
    """
    if draws < 2:
        raise ShapeError(f"a trace with an error needs at least 2 draws, found {draws}")
    found = []
    for _ in range(draws):
        z = torch.randint(0, 2, (dimension,), generator=generator).double() * 2 - 1
        found.append(z @ product(z))
    values = torch.stack(found)
    return float(values.mean()), float(values.std() / draws**0.5)
