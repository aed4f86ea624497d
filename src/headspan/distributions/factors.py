r"""Covariances: what is accepted as one, and factors of many at once.

A covariance is symmetric up to rounding and positive semidefinite; anything else raises. Work on many goes by

1. a few matrices at a time, so that they stay in the cache from one step to the next (a factor of two to three);
2. Cholesky's factor L of S = L L^T where S is positive definite, which gives determinants and quotients;
3. the eigenvectors that span the support, where it is not. A direction belongs to the support if its variance exceeds
   d eps times the largest: below that, rounding cannot be told from spread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.rank import promote, require_finite
from headspan.threads import one_thread

CACHE = 2**19
"""Bytes of one operand that are worked on together."""
SYMMETRY = 1e-8
"""Largest difference between S and S^T that passes for rounding, relative to the largest entry."""


def covariance(S: Float[Tensor, "*batch d _d"], what: str = "a covariance") -> Float[Tensor, "*batch d _d"]:
    """`S` if it is square, finite and symmetric up to rounding; else an error. Its lower half is what counts."""
    S = promote(S, what)
    if S.shape[-1] != S.shape[-2] or S.shape[-1] == 0:
        raise ShapeError(f"{what} needs to be square, [..., d, d] with d >= 1, found {tuple(S.shape)}")
    rows = S.reshape(-1, *S.shape[-2:])
    step = _step(rows)
    for i in range(0, len(rows), step):
        piece = rows[i : i + step]
        require_finite(piece, what)
        # All together first, against the smallest of them; only what fails that is looked at one by one.
        least = torch.linalg.vector_norm(piece, dim=(-2, -1)).min()
        if float(torch.dist(piece, piece.mT)) > SYMMETRY * float(least) / S.shape[-1]:
            _require_symmetric(piece, what)
    return S


def _require_symmetric(S: Tensor, what: str) -> None:
    largest = S.abs().amax((-1, -2))
    excess = float(((S - S.mT).abs().amax((-1, -2)) / torch.where(largest > 0, largest, 1.0)).max())
    if excess > SYMMETRY:
        raise ArgumentError(f"{what} needs to be symmetric, found S and S^T apart by {excess:.3g} of the largest entry")


def vector(mu: Float[Tensor, "*batch _d"], S: Tensor, what: str = "a mean") -> Tensor:
    """`mu` if it is finite and as long as the side of S; else an error."""
    if mu.shape[-1] != S.shape[-1]:
        raise ShapeError(f"{what} of length {mu.shape[-1]} does not fit a covariance of side {S.shape[-1]}")
    require_finite(mu, what)
    return mu


def _step(x: Tensor) -> int:
    """How many members of the first axis are worked on together."""
    return max(1, CACHE // max(x[:1].numel() * x.element_size(), 1))


def in_cache(work: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """`work` on a few members of the operands' common first axis at a time, its results joined.

    Every thread that torch may use takes pieces of its own; none waits for another inside a piece.
    """
    count, step = operands[0].shape[0], min(map(_step, operands))
    workers = torch.get_num_threads()
    with one_thread():
        if count <= step:
            return work(*operands)
        pieces = [[x[i : i + step] for x in operands] for i in range(0, count, step)]
        if workers == 1 or operands[0].device.type != "cpu":
            return torch.cat([work(*piece) for piece in pieces])
        with ThreadPoolExecutor(min(workers, len(pieces))) as pool:
            return torch.cat(list(pool.map(lambda piece: work(*piece), pieces)))


def common_batch(*operands: tuple[Tensor, int]) -> tuple[torch.Size, list[Tensor]]:
    """The shape common to the leading axes of operands with that many own axes, and the operands, those axes one."""
    shapes = [x.shape[: x.ndim - own] for x, own in operands]
    try:
        batch: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    except RuntimeError as reason:
        raise ShapeError(f"batch axes need to fit each other, found {[tuple(s) for s in shapes]}") from reason
    own_shapes = [x.shape[x.ndim - own :] for x, own in operands]
    rows = [x.expand(*batch, *own).reshape(-1, *own) for (x, _), own in zip(operands, own_shapes, strict=True)]
    return batch, rows


def cholesky(S: Float[Tensor, "n d d"]) -> tuple[Float[Tensor, "n d d"], Bool[Tensor, " n"]]:
    """L with L L^T = S, and where that is safe: S is positive definite with no variance lost in rounding."""
    L, info = torch.linalg.cholesky_ex(S)
    diagonal = L.diagonal(dim1=-2, dim2=-1)
    # The smallest pivot bounds the smallest eigenvalue from above: one near rounding leaves the rank open.
    regular = diagonal.amin(-1) ** 2 > 100 * S.shape[-1] * torch.finfo(S.dtype).eps * diagonal.amax(-1) ** 2
    return L, (info == 0) & regular


def log_determinant(L: Float[Tensor, "n d d"]) -> Float[Tensor, " n"]:
    """log det L L^T of a triangular L."""
    return 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def squared_distance(L: Float[Tensor, "n d d"], gap: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """gap^T (L L^T)^-1 gap of a triangular L: the squared Mahalanobis distance."""
    turned: Tensor = torch.linalg.solve_triangular(L, gap.unsqueeze(-1), upper=False)
    return turned.square().sum((-1, -2))


def support(
    S: Float[Tensor, "*batch d d"], what: str = "a covariance"
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d d"], Bool[Tensor, "*batch d"]]:
    """Variances (ascending), axes (columns), and which of them belong to the support; negative variance raises."""
    with one_thread():
        values, axes = torch.linalg.eigh(S)
    scale = values.abs().amax(-1, keepdim=True)
    eps = torch.finfo(S.dtype).eps * S.shape[-1]
    worst = float((values / torch.where(scale > 0, scale, 1.0)).min())
    if worst < -1e4 * eps:
        raise ArgumentError(
            f"{what} needs to be positive semidefinite, found an eigenvalue {worst:.3g} times the largest; "
            "estimate it with shrinkage, or add a noise floor"
        )
    return values.clamp(min=0), axes, values > eps * scale


def unit_scale(S: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d"]:
    """Standard deviations, 1 where there is none: dividing by them keeps small units from passing for no spread."""
    variance = S.diagonal(dim1=-2, dim2=-1)
    return torch.where(variance > 0, variance, 1.0).sqrt()


def rescale(S: Float[Tensor, "*batch d d"], scale: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
    """S / (s s^T)."""
    return S / scale.unsqueeze(-1) / scale.unsqueeze(-2)


def whitening(S: Float[Tensor, "*batch d d"], what: str = "a covariance") -> Float[Tensor, "*batch d d"]:
    """W with W^T S W = I on the support, as columns; columns that lie outside the support are 0."""
    units = unit_scale(S)
    values, axes, inside = support(rescale(S, units), what)
    scale = torch.where(inside, torch.where(inside, values, 1.0).rsqrt(), 0.0)
    return axes * scale.unsqueeze(-2) / units.unsqueeze(-1)
