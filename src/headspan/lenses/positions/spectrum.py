"""Singular values and directions in R^d of a tall table or a wide layer matrix, never more than d x d in memory.

1. Tables [rows, d]: the mean row first, then the d x d Gram matrix of the rows less that mean, both in float64 and in
   blocks of rows. The Gram matrix of the rows as stored is that plus rows * mean mean^T, which loses nothing.
2. Layer matrices [d, n]: the Gram matrix W W^T if n >= d, else QR and the singular values of the small factor.
3. Eigenvectors are the directions. By the Gram matrix singular values below about sqrt(d eps) of the largest, 4e-7 for
   d = 768, are rounding, so the tolerance for a rank is never below that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.threads import one_thread


@dataclass(frozen=True)
class Spectrum:
    """Singular values above the tolerance, descending, with their orthonormal directions in R^d as columns."""

    values: Float[Tensor, " rank"]
    directions: Float[Tensor, "d rank"]

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def d(self) -> int:
        return self.directions.shape[0]

    @property
    def weights(self) -> Float[np.ndarray, " rank"]:
        """Each direction's share of the energy sum of s^2; adds up to 1."""
        energy = self.values.cpu().numpy() ** 2
        return energy / energy.sum() if len(energy) else energy

    def energy_rank(self, share: float) -> int:
        """How many leading directions hold at least this share of the energy; 0 for a spectrum without directions."""
        if not self.rank:
            return 0
        # A share reached up to rounding is reached.
        return int(np.searchsorted(np.cumsum(self.weights), share - 1e-12) + 1)


@dataclass(frozen=True)
class TableSpectra:
    """A table's spectrum as stored and with its mean row removed, and what is needed of its coordinates."""

    n_rows: int
    mean_row: Float[Tensor, " d"]
    mean_share: float
    stored: Spectrum
    centred: Spectrum
    coordinate_energy: Float[np.ndarray, "centring d"]

    def __getitem__(self, centring: str) -> Spectrum:
        return self.centred if centring == "centred" else self.stored


def rank_tolerance(d: int, dtype: torch.dtype) -> float:
    """The share of the largest singular value up to which others count as zero."""
    return float(max(d * torch.finfo(dtype).eps, (d * torch.finfo(torch.float64).eps) ** 0.5))


def table_spectra(table: Float[Tensor, "row d"], tolerance: float, scratch: int) -> TableSpectra:
    """Both spectra of a table; beside it and d x d matrices, this takes about `scratch` bytes."""
    n, d = table.shape
    blocks = row_blocks(table, scratch)
    mean = torch.stack([block.double().sum(0) for block in blocks]).sum(0) / n
    gram = torch.zeros(d, d, dtype=torch.float64, device=table.device)
    for block in blocks:
        rows = block.double() - mean
        gram.addmm_(rows.mT, rows)
    whole = gram + n * torch.outer(mean, mean)
    total = float(whole.trace())
    stored = _of_gram(whole, tolerance, None)
    # Removing the mean of equal rows leaves rounding; what is small beside the table itself counts as nothing.
    largest = float(stored.values[0]) if stored.rank else 0.0
    return TableSpectra(
        n_rows=n,
        mean_row=mean,
        mean_share=float(n * mean.square().sum()) / total if total > 0 else float("nan"),
        stored=stored,
        centred=_of_gram(gram, tolerance, largest),
        coordinate_energy=torch.stack([whole.diagonal(), gram.diagonal()]).clamp(min=0).cpu().numpy(),
    )


def row_blocks(table: Float[Tensor, "row d"], scratch: int) -> list[Float[Tensor, "rows d"]]:
    """The table in blocks of rows, each of which takes at most half of `scratch` in double precision."""
    step = max(1, scratch // (16 * table.shape[1]))
    return [table[start : start + step] for start in range(0, len(table), step)]


def _of_gram(gram: Float[Tensor, "d d"], tolerance: float, largest: float | None) -> Spectrum:
    with one_thread():
        squares, directions = torch.linalg.eigh(gram)
    values = squares.clamp(min=0).flip(-1).sqrt()
    kept = values > tolerance * (values[0] if largest is None else largest)
    return Spectrum(values[kept], directions.flip(-1)[:, kept])


def matrix_spectrum(W: Float[Tensor, "d n"], tolerance: float, scratch: int) -> Spectrum:
    """Singular values of W and its left singular directions, those in R^d; a wide W is taken by blocks of columns."""
    if W.shape[1] >= W.shape[0]:
        gram = torch.zeros(len(W), len(W), dtype=torch.float64, device=W.device)
        for block in row_blocks(W.mT, scratch):
            columns = block.double()
            gram.addmm_(columns.mT, columns)
        return _of_gram(gram, tolerance, None)
    directions, values = batched_directions(W)
    kept = values > tolerance * values[0]
    return Spectrum(values[kept], directions[:, kept])


def batched_directions(W: Float[Tensor, "*batch d n"]) -> tuple[Float[Tensor, "*batch d r"], Float[Tensor, "*batch r"]]:
    """Left singular vectors and values, r = min(d, n) of them, by QR and the small factor."""
    with one_thread():
        Q, R = torch.linalg.qr(W.double())
        U, values, _ = torch.linalg.svd(R)
    return Q @ U, values
