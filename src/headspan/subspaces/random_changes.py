r"""Random changes of the size of a given one: what a change is compared with.

Gaussian: independent entries, scaled to the Frobenius norm of the change. It knows the change's size and nothing else.

Rounding: every entry of the change keeps its size and gets a random sign. Rounding to the nearest of several levels
leaves an error whose size depends on the step of its group and on where the weight happens to lie between two levels,
and whose sign is as good as a coin (Widrow 1956; exact for subtractive dither). This null keeps the steps of any scheme
without knowing the scheme: the change is one of 2^n that are equally likely under it.

The span of a matrix after such changes is drawn whole, since entries of unequal size do not turn with a basis.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.subspaces.random_angles import PerturbedSpan
from headspan.threads import one_thread

NOISES = ("gaussian", "rounding")


def random_change(
    change: Float[Tensor, "*batch m n"], noise: str, generator: torch.Generator
) -> Float[Tensor, "*batch m n"]:
    """One draw of a random change for every matrix.

    Parameters
    ----------
    change
        [..., m, n]: the change whose size is kept, of each matrix or of each entry.
    noise
        "gaussian" or "rounding".
    generator
        On the CPU; draws do not depend on the device.

    Returns
    -------
    Tensor
        Like `change`, of the same Frobenius norms; zero where the change is zero.
    """
    if noise not in NOISES:
        raise ArgumentError(f"noise={noise!r} is unknown; random changes are {' or '.join(NOISES)}")
    if noise == "rounding":
        signs = torch.randint(2, change.shape, generator=generator, dtype=torch.int8).to(change.device)
        return torch.where(signs.bool(), change, -change)
    drawn = torch.randn(change.shape, generator=generator, dtype=torch.float64)
    drawn *= (torch.linalg.matrix_norm(change).cpu() / torch.linalg.matrix_norm(drawn))[..., None, None]
    return drawn.to(change)


@one_thread()
def rounded_span(
    W: Float[Tensor, "d p"],
    change: Float[Tensor, "d p"],
    basis: Float[Tensor, "d k"],
    draws: int,
    generator: torch.Generator,
    rank: tuple[int, int],
) -> tuple[PerturbedSpan, Float[Tensor, " draws"]]:
    """Draws of the span of W after rounding noise of the size of `change`.

    Parameters
    ----------
    W, change
        The matrix as it was, p <= d, and its change; in float64.
    basis
        [d, k]: the old span; columns beyond its dimension are zero.
    draws, generator, rank
        As for `random_perturbation`.

    Returns
    -------
    PerturbedSpan
        Angles [draw, min(rank)] in [0, pi/2], good to 1e-8, and singular values [draw, p], descending.
    Tensor
        [draw], in [0, 1]: the share of each drawn change that points out of the old span.
    """
    before, after = rank
    noise = random_change(change.expand(draws, *change.shape), "rounding", generator)
    residual = noise - basis @ (basis.mT @ noise)
    outside = residual.square().sum((-1, -2)) / change.square().sum()
    changed = W + noise
    if after == W.shape[-1]:
        space, triangle = torch.linalg.qr(changed)
        values = torch.linalg.svdvals(triangle)
    else:
        left, values, _ = torch.linalg.svd(changed, full_matrices=False)
        space = left[..., :after]
    across = space - basis @ (basis.mT @ space)
    # Directions beyond the old span's dimension have a sine of 1; they sort last and are no angles of the pair.
    squares = torch.linalg.eigvalsh(across.mT @ across)[:, : min(before, after)]
    return PerturbedSpan(torch.asin(squares.clamp(0, 1).sqrt()), values), outside
