"""Low-rank matrices M = A B^T, kept as their two factors.

The circuits W_QK = W_Q W_K^T and W_OV = W_V W_O are d x d matrices of rank r << d. Forming one costs d^2 r operations
and d^2 memory; everything asked of it can be had from the factors in O(d r^2):

1. QR of both factors, A = Q_A R_A and B = Q_B R_B, gives M = Q_A (R_A R_B^T) Q_B^T: singular values, norms and
   vectors of M are those of the r x r core R_A R_B^T, rotated.
2. The non-zero eigenvalues of A B^T are those of the r x r matrix B^T A, and the trace is sum(A * B).
3. A product with a dense matrix or with another factored one changes one factor and stays factored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.subspaces.rank import promote
from headspan.threads import one_thread


@dataclass(frozen=True)
class Factored:
    """A batch of matrices M = A B^T.

    Parameters
    ----------
    A
        [..., m, r], real.
    B
        [..., n, r], real, same r and dtype; batch axes broadcast.
    """

    A: Float[Tensor, "*batch_a m r"]
    B: Float[Tensor, "*batch_b n _r"]

    def __post_init__(self) -> None:
        if self.A.ndim < 2 or self.B.ndim < 2 or self.A.shape[-1] != self.B.shape[-1]:
            raise ShapeError(
                "a factored matrix A B^T needs A [..., m, r] and B [..., n, r] with one r, "
                f"found {tuple(self.A.shape)} and {tuple(self.B.shape)}"
            )
        for name in ("A", "B"):
            object.__setattr__(self, name, promote(getattr(self, name), f"factor {name}"))
        if self.A.dtype != self.B.dtype or self.A.device != self.B.device:
            raise ShapeError(
                f"both factors need one dtype and device, found {self.A.dtype} on {self.A.device} "
                f"and {self.B.dtype} on {self.B.device}; convert one with .to"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of M, [..., m, n]."""
        batch: torch.Size = torch.broadcast_shapes(self.A.shape[:-2], self.B.shape[:-2])  # type: ignore[no-untyped-call]
        return (*batch, self.A.shape[-2], self.B.shape[-2])

    @property
    def inner(self) -> int:
        """r, the number of columns of the factors: an upper bound of the rank."""
        return self.A.shape[-1]

    @property
    def mT(self) -> Factored:
        """The transpose M^T = B A^T."""
        return Factored(self.B, self.A)

    def to_dense(self) -> Float[Tensor, "*batch m n"]:
        """M itself, [..., m, n]; costs m n r operations and m n memory."""
        return self.A @ self.B.mT

    def _core(self) -> Tensor:
        """R_A R_B^T, which has the non-zero singular values of M."""
        with one_thread():
            core: Tensor = torch.linalg.qr(self.A, mode="r").R @ torch.linalg.qr(self.B, mode="r").R.mT
        return core

    def singular_values(self) -> Float[Tensor, "*batch k"]:
        """The largest min(m, n, r) singular values, descending, >= 0; the others are 0."""
        core = self._core()
        with one_thread():
            values: Tensor = torch.linalg.svdvals(core)
        return values

    def svd(
        self,
    ) -> tuple[Float[Tensor, "*batch m k"], Float[Tensor, "*batch k"], Float[Tensor, "*batch k n"]]:
        """U, S, Vh with M = U diag(S) Vh and k = min(m, n, r); columns of U and rows of Vh are orthonormal."""
        Q_A, R_A = torch.linalg.qr(self.A)
        Q_B, R_B = torch.linalg.qr(self.B)
        U, S, Vh = torch.linalg.svd(R_A @ R_B.mT, full_matrices=False)
        return Q_A @ U, S, Vh @ Q_B.mT

    def frobenius_norm(self) -> Float[Tensor, "*batch"]:
        """||M||_F = ||R_A R_B^T||_F >= 0. Entries of variance 1/d in both factors (d x r) give about sqrt(r)."""
        norm: Tensor = torch.linalg.matrix_norm(self._core())
        return norm

    def nuclear_norm(self) -> Float[Tensor, "*batch"]:
        """||M||_* = sum of singular values, between ||M||_F and sqrt(r) ||M||_F."""
        return self.singular_values().sum(-1)

    def trace(self) -> Float[Tensor, "*batch"]:
        """tr M = sum(A * B), for square M; 0 on average for independent zero-mean factors."""
        self._require_square("trace")
        return (self.A * self.B).sum(dim=(-2, -1))

    def eigenvalues(self) -> Complex[Tensor, "*batch r"]:
        """Eigenvalues of B^T A, which are the r eigenvalues of the square M that need not be 0, in no set order.

        If r > n, the surplus r - n of them are 0 up to rounding.
        """
        self._require_square("eigenvalues")
        values: Tensor = torch.linalg.eigvals(self.B.mT @ self.A)
        return values

    def _require_square(self, what: str) -> None:
        if self.A.shape[-2] != self.B.shape[-2]:
            raise ShapeError(f"{what} needs a square matrix, found shape {self.shape}")

    def __matmul__(self, other: Factored | Tensor) -> Factored:
        """M @ other, still factored; with two factored matrices the smaller inner dimension is kept."""
        rows = other.shape[-2]
        if self.shape[-1] != rows:
            raise ShapeError(f"product needs matching sides, found {self.shape} @ {tuple(other.shape)}")
        if isinstance(other, Tensor):
            return Factored(self.A, other.mT @ self.B)
        middle = self.B.mT @ other.A
        if self.inner <= other.inner:
            return Factored(self.A, other.B @ middle.mT)
        return Factored(self.A @ middle, other.B)

    def __rmatmul__(self, other: Tensor) -> Factored:
        """Dense matrix @ M, still factored."""
        if other.shape[-1] != self.shape[-2]:
            raise ShapeError(f"product needs matching sides, found {tuple(other.shape)} @ {self.shape}")
        return Factored(other @ self.A, self.B)


@one_thread()
def gram_root(gram: Float[Tensor, "*heads p p"]) -> Float[Tensor, "*heads p p"]:
    """L with L L^T = gram: Cholesky where the matrix is safely positive definite, by eigenvalues where it is not."""
    L: Tensor
    L, info = torch.linalg.cholesky_ex(gram)
    diagonal = L.diagonal(dim1=-2, dim2=-1)
    shaky = (info != 0) | (diagonal.amin(-1) <= torch.finfo(gram.dtype).eps ** 0.5 * diagonal.amax(-1))
    if bool(shaky.any()):
        values, vectors = torch.linalg.eigh(gram[shaky])
        L[shaky] = vectors * values.clamp(min=0).sqrt()[..., None, :]
    return L
