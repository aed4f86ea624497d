"""How the eigenvalues of the loss's Hessian are distributed, by stochastic Lanczos quadrature, along a run.

For a unit vector v, the measure that puts the weight (v . u_i)^2 on each eigenvalue has the same first 2m - 1 moments
as the Ritz values of m Lanczos steps from v with the squared first components of their vectors as weights. Over random
v its mean is the spectral density. So a few probes of some tens of products each say which share of the eigenvalues
lies where, with an error over probes. Extremes come out of the same numbers.

A share below zero counts eigenvalues under minus one hundredth of the largest: nearer to 0 lies the bulk of a model
with more parameters than constraints, and a Ritz value cannot tell its sign.

References
----------
Golub and Meurant (1994), Matrices, moments and quadrature. Ghorbani, Krishnan and Xiao (2019), An investigation into
neural net optimization via Hessian eigenvalue density.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.lab.curvature import LossSurface, Product, lanczos, tridiagonal
from headspan.lab.run_folder import open_model
from headspan.lab.study import Bench

PROBES, STEPS = 4, 30
NEAR_ZERO = 0.01
GRID, WIDTH = 121, 0.02
MOMENTS = ("before training", "plateau", "after the transition", "end")


@dataclass(frozen=True)
class Quadrature:
    """Nodes and weights [probe, node] of the spectral measures of several probes; weights of a probe sum to 1."""

    nodes: Float[Tensor, "probe node"]
    weights: Float[Tensor, "probe node"]

    def mean(self, values: Float[Tensor, "probe node"]) -> tuple[float, float]:
        """The mean of a function of eigenvalues (its values at the nodes) over the spectrum, and its standard error."""
        each = (self.weights * values).sum(1)
        return float(each.mean()), float(each.std() / len(each) ** 0.5)

    def density(self, grid: Float[Tensor, " value"], width: float) -> Float[Tensor, " value"]:
        """Eigenvalues per unit at each value of a grid, as a share of all, blurred by a Gaussian of that width."""
        distance = (grid[:, None, None] - self.nodes) / width
        kernel = torch.exp(-0.5 * distance.square()) / (width * (2 * torch.pi) ** 0.5)
        blurred: Tensor = (kernel * self.weights).sum(-1).mean(-1)
        return blurred


def spectral_quadrature(
    product: Product, dimension: int, generator: torch.Generator, probes: int = PROBES, steps: int = STEPS
) -> Quadrature:
    """Quadrature of the spectral density of a symmetric operator, from random unit vectors."""
    if probes < 2 or steps < 1:
        raise ArgumentError(f"probes needs to be at least 2 and steps at least 1, found {probes} and {steps}")
    found = [
        lanczos(product, torch.randn(dimension, generator=generator, dtype=torch.float64), steps)[1:]
        for _ in range(probes)
    ]
    fewest = min(len(alphas) for alphas, _ in found)
    pairs = [torch.linalg.eigh(tridiagonal(alphas[:fewest], betas[:fewest])) for alphas, betas in found]
    return Quadrature(
        torch.stack([values for values, _ in pairs]), torch.stack([vectors[0].square() for _, vectors in pairs])
    )


def moments_of(bench: Bench) -> dict[str, int]:
    """Kept steps to look at: before training, on the plateau, the first well after the transition, and the last."""
    kept, later = sorted(bench.checkpoints), bench.at.step + 3 * bench.at.width
    steps = (kept[0], bench.plateau_step(), next((step for step in kept if step >= later), kept[-1]), kept[-1])
    return dict(zip(MOMENTS, steps, strict=True))


def density_course(bench: Bench, probes: int = PROBES, steps: int = STEPS) -> xr.Dataset:
    """The Hessian's spectrum at four moments of a run.

    Returns
    -------
    Dataset
        `density` [moment, value], 1 per unit; `negative_share` [moment], share of eigenvalues below -1 % of the
        largest, in [0, 1], 0 at a minimum; `negative_weight`, the sum of negative eigenvalues over that of all sizes,
        in [0, 1], one half for a random symmetric matrix; `outliers`, eigenvalues above a tenth of the largest, as a
        number; each with `_error`; `top`, `bottom`, `at` (the step).
    """
    chosen, columns, densities = moments_of(bench), [], []
    grid = torch.linspace(-1, 2, GRID, dtype=torch.float64)
    for step in chosen.values():
        surface = LossSurface.of(open_model(bench.checkpoints[step]), bench.id)
        n, generator = len(surface.point), torch.Generator().manual_seed(bench.recipe.seed)
        found = spectral_quadrature(surface.hessian_product(), n, generator, probes, steps)
        columns.append(_numbers(found, n) | {"at": float(step)})
        densities.append(found.density(grid, WIDTH).numpy())
    return xr.Dataset(
        {name: (("moment",), [one[name] for one in columns]) for name in columns[0]}
        | {"density": (("moment", "value"), np.array(densities))},
        coords={"moment": list(chosen), "value": grid.numpy()},
        attrs={"probes": probes, "steps": steps},
    )


def _numbers(found: Quadrature, n: int) -> dict[str, float]:
    top, bottom = float(found.nodes.max()), float(found.nodes.min())
    share, share_error = found.mean((found.nodes < -NEAR_ZERO * top).double())
    outliers, outliers_error = found.mean((found.nodes > 0.1 * top).double())
    size, negative = found.mean(found.nodes.abs())[0], found.mean(found.nodes.clamp(max=0).abs())[0]
    return {
        "negative_share": share,
        "negative_share_error": share_error,
        "negative_weight": negative / size,
        "outliers": outliers * n,
        "outliers_error": outliers_error * n,
        "top": top,
        "bottom": bottom,
    }
