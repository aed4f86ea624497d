r"""How sharply the loss is curved at a model's weights, and in which of its matrices.

The Hessian of the loss over all positions, on a few test sequences, is known by its products with vectors: v to the
transposed derivative of the gradient, which for a symmetric matrix is the derivative itself. Its graph is built once
and used for every product, which costs a quarter of following the gradient forward anew each time. (`torch.func` gives
the same numbers, and imports torch's compiler, two seconds that a small run does not need.)
Everything is in float64, with attention computed in the open.

Its extreme eigenvalues come from Lanczos with full reorthogonalization: from a random start v_1, each step multiplies,
removes the components along all earlier vectors (twice, since once is not enough in floating point) and normalizes. The
eigenvalues of the small tridiagonal matrix are Ritz values; those at both ends converge first. The residual
|beta_m s_m| bounds the distance from a Ritz value to the nearest eigenvalue. Power iteration would find the largest in
size only, which may be negative; here both ends come out, each with its error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from headspan.errors import ArgumentError
from headspan.lab.geometry import groups
from headspan.lab.model import LabModel
from headspan.lab.scores import next_token_loss
from headspan.lab.sequences import Sequences

SEQUENCES, LANCZOS_STEPS, TRACE_DRAWS = 16, 12, 4
Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LossSurface:
    """The loss of a model on fixed sequences as a function of one long vector of parameters, in float64."""

    model: LabModel
    sequences: Sequences

    @classmethod
    def of(cls, model: LabModel, sequences: Sequences, count: int = SEQUENCES) -> LossSurface:
        """The surface around a model's present weights, on the first `count` sequences."""
        copy = LabModel(model.shape).double()
        copy.load_state_dict({name: tensor.detach().double().cpu() for name, tensor in model.state_dict().items()})
        few = Sequences(sequences.tokens[:count], sequences.scored[:count], sequences.origin[:count])
        return cls(copy, few.to(torch.device("cpu")))

    @property
    def point(self) -> Float[Tensor, " n"]:
        """The weights as one vector, in the order of `named_parameters`."""
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])

    def parameters(self, vector: Float[Tensor, " n"]) -> dict[str, Tensor]:
        """A vector cut into parameters."""
        shapes = {name: p.shape for name, p in self.model.named_parameters()}
        pieces = torch.split(vector, [shape.numel() for shape in shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}

    def loss(self, vector: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of the next token over all positions at these weights."""
        named = {f"model.{name}": tensor for name, tensor in self.parameters(vector).items()}
        logits = functional_call(_Open(self.model), named, self.sequences.tokens)
        return next_token_loss(logits, self.sequences)

    def gradient(self) -> Float[Tensor, " n"]:
        """The gradient at the present weights."""
        return self._gradient_graph()[1].detach()

    def hessian_product(self) -> Product:
        """v to H v at the present weights."""
        point, gradient = self._gradient_graph()

        def product(v: Tensor) -> Tensor:
            return torch.autograd.grad(gradient, point, v, retain_graph=True)[0]

        return product

    def _gradient_graph(self) -> tuple[Tensor, Tensor]:
        """The present weights, and the gradient there as a function of them."""
        point = self.point.requires_grad_()
        return point, torch.autograd.grad(self.loss(point), point, create_graph=True)[0]


class _Open(torch.nn.Module):
    """The model with its attention in the open, which second derivatives need."""

    def __init__(self, model: LabModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.trace(tokens).logits


def sharpness_row(model: LabModel, sequences: Sequences, seed: int) -> dict[str, np.ndarray]:
    """Curvature at a model's weights.

    Returns
    -------
    dict
        `hessian_top`, `hessian_bottom`: extreme Ritz values of the Hessian after 12 Lanczos steps; `_error` bounds
        their distance to an eigenvalue. `hessian_trace` with its standard error `hessian_trace_error`. `sharpness_share
        [group]`: share of the top eigenvector's squared norm in each group of parameters, in [0, 1], sums to 1;
        under the null each group's share of all parameters. `surface_gradient_norm`: norm of the gradient on the same
        sequences.
    """
    surface = LossSurface.of(model, sequences)
    generator = torch.Generator().manual_seed(seed)
    product, n = surface.hessian_product(), len(surface.point)
    ends = lanczos_extremes(product, n, LANCZOS_STEPS, generator)
    trace, error = hutchinson_trace(product, n, TRACE_DRAWS, generator)
    numbers = {
        "hessian_top": ends.top,
        "hessian_top_error": ends.top_error,
        "hessian_bottom": ends.bottom,
        "hessian_bottom_error": ends.bottom_error,
        "hessian_trace": trace,
        "hessian_trace_error": error,
        "surface_gradient_norm": float(surface.gradient().norm()),
    }
    row = {name: np.array(value) for name, value in numbers.items()}
    return row | {"sharpness_share": group_shares(surface, ends.top_vector)}


def group_shares(surface: LossSurface, vector: Float[Tensor, " n"]) -> np.ndarray:
    """Share of a vector's squared norm in each group of parameters, in the order of `groups`."""
    pieces = surface.parameters(vector)
    squares = [sum(float(pieces[name].square().sum()) for name in names) for names in groups(surface.model).values()]
    return np.array(squares) / max(sum(squares), 1e-300)


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
        raise ArgumentError(f"dimension and steps need to be at least 1, found {dimension} and {steps}")
    start = torch.randn(dimension, generator=generator, dtype=torch.float64)
    basis, alphas, betas = lanczos(product, start, steps)
    values, vectors = torch.linalg.eigh(tridiagonal(alphas, betas))
    residual = betas[len(alphas) - 1] * vectors[-1].abs()
    ritz = vectors.T @ basis
    return Extremes(float(values[-1]), float(residual[-1]), ritz[-1], float(values[0]), float(residual[0]), ritz[0])


def lanczos(
    product: Product, start: Float[Tensor, " n"], steps: int
) -> tuple[Float[Tensor, "m n"], list[float], list[float]]:
    """An orthonormal basis of what powers of the operator make of a start, and the operator in it (`tridiagonal`)."""
    basis, alphas, betas, dimension = [start / start.norm()], [], [], len(start)
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
    return torch.stack(basis[: len(alphas)]), alphas, betas


def tridiagonal(alphas: list[float], betas: list[float]) -> Float[Tensor, "m m"]:
    """The symmetric matrix with these numbers on and beside its diagonal; the last beta is outside it."""
    inner = torch.tensor(betas[: len(alphas) - 1], dtype=torch.float64)
    return torch.diag(torch.tensor(alphas, dtype=torch.float64)) + torch.diag(inner, 1) + torch.diag(inner, -1)


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
        raise ArgumentError(f"draws needs to be at least 2, found {draws}")
    found = []
    for _ in range(draws):
        z = torch.randint(0, 2, (dimension,), generator=generator).double() * 2 - 1
        found.append(z @ product(z))
    values = torch.stack(found)
    return float(values.mean()), float(values.std() / draws**0.5)
