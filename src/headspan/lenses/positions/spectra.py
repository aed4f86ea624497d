r"""Singular values and directions in R^d, of tables and of the matrices of a layer.

1. Tables [rows, d]: the mean row first, then the d x d Gram matrix of the rows less that mean, both in float64 and in
   blocks of rows. The Gram matrix of the rows as stored is that plus rows * mean mean^T, which loses nothing.
2. Layer matrices [d, n]: the Gram matrix W W^T if n >= d, else QR and the singular values of the small factor.
3. Eigenvectors are the directions. By the Gram matrix singular values below about sqrt(d eps) of the largest, 4e-7 for
   d = 768, are rounding. Where a layer's matrix has some near that, its faint directions are taken from the matrix
   inside their span, which keeps all digits. The rank is decided by the noise of the stored dtype (`subspaces.rank`)
   or by a given tolerance; a table's tolerance is never below sqrt(d eps).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.subspaces import default_tolerance, noise_floor
from headspan.threads import one_thread

Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]
NEAR = 30
"""Times the rounding of a Gram matrix: singular values above that are good to a thousandth."""
FAINT = 1e-3
"""Share of the largest singular value below which others are taken from the matrix where the Gram matrix does not do:
above it they are good to a millionth."""


@dataclass(frozen=True)
class Spectrum:
    """Singular values that count, descending, with their orthonormal directions in R^d as columns."""

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
    centered: Spectrum
    coordinate_energy: Float[np.ndarray, "centering d"]

    def __getitem__(self, centering: str) -> Spectrum:
        return self.centered if centering == "centered" else self.stored


@dataclass(frozen=True)
class RankRule:
    """Which singular values count: those above a share of the largest, and above the noise of the stored dtype.

    Parameters
    ----------
    tolerance
        The share asked for; None for rounding and noise.
    roundoff
        Error of an entry over the rms of the entries.
    """

    tolerance: float | None = None
    roundoff: float = 0.0

    def least(self, values: Float[Tensor, " k"], shape: tuple[int, int], rounding: float, largest: float) -> float:
        """What a value must exceed, for the spectrum of a matrix of this shape; `rounding` is a share too."""
        if self.tolerance is not None:
            return max(self.tolerance, rounding) * largest
        rms = float(values.norm()) / (shape[0] * shape[1]) ** 0.5
        return max(rounding * largest, float(noise_floor(self.roundoff * rms, *shape)))


def gram_rounding(d: int) -> float:
    """The share of the largest singular value up to which others are rounding, if they come from a Gram matrix."""
    return float((d * torch.finfo(torch.float64).eps) ** 0.5)


def table_spectra(table: Float[Tensor, "row d"], rule: RankRule, scratch: int) -> TableSpectra:
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
    values, directions = _of_gram(whole)
    # Removing the mean of equal rows leaves rounding; what is small beside the table itself counts as nothing.
    least = rule.least(values, (n, d), gram_rounding(d), float(values[0]))
    return TableSpectra(
        n_rows=n,
        mean_row=mean,
        mean_share=float(n * mean.square().sum()) / total if total > 0 else float("nan"),
        stored=_above(least, values, directions),
        centered=_above(least, *_of_gram(gram)),
        coordinate_energy=torch.stack([whole.diagonal(), gram.diagonal()]).clamp(min=0).cpu().numpy(),
    )


def row_blocks(table: Float[Tensor, "row d"], scratch: int) -> list[Float[Tensor, "rows d"]]:
    """The table in blocks of rows, each of which takes at most half of `scratch` in double precision."""
    step = max(1, scratch // (16 * table.shape[1]))
    return [table[start : start + step] for start in range(0, len(table), step)]


def _of_gram(gram: Float[Tensor, "d d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Singular values, descending, and directions."""
    with one_thread():
        squares, directions = torch.linalg.eigh(gram)
    return squares.clamp(min=0).flip(-1).sqrt(), directions.flip(-1)


def _above(least: float, values: Float[Tensor, " k"], directions: Float[Tensor, "d k"]) -> Spectrum:
    return Spectrum(values[values > least], directions[:, values > least])


def matrix_spectrum(W: Float[Tensor, "d n"], rule: RankRule, scratch: int) -> Spectrum:
    """Singular values of W and its left singular directions, those in R^d; a wide W is taken by blocks of columns."""
    d, n = W.shape
    if n >= d:
        gram = torch.zeros(d, d, dtype=torch.float64, device=W.device)
        for block in row_blocks(W.mT, scratch):
            columns = block.double()
            gram.addmm_(columns.mT, columns)
        values, directions = _of_gram(gram)
        if bool(values[-1] > NEAR * gram_rounding(d) * values[0]):
            return _above(rule.least(values, (d, n), 0.0, float(values[0])), values, directions)
        values, directions = _faint_again(W, values, directions)
    else:
        directions, values = batched_directions(W)
    rounding = default_tolerance(max(d, n), torch.float64)
    return _above(rule.least(values, (d, n), rounding, float(values[0])), values, directions)


def _faint_again(
    W: Float[Tensor, "d n"], values: Float[Tensor, " d"], directions: Float[Tensor, "d d"]
) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """A Gram matrix's spectrum with its faint part taken from W itself.

    The faint directions together are exact to rounding, only which is which is lost in the squares: W inside their
    span tells them apart.
    """
    faint = values < FAINT * values[0]
    span = directions[:, faint]
    with one_thread():
        U, own, _ = torch.linalg.svd(span.mT @ W.double(), full_matrices=False)
    values, order = torch.cat([values[~faint], own]).sort(descending=True)
    return values, torch.cat([directions[:, ~faint], span @ U], dim=1)[:, order]


def batched_directions(W: Float[Tensor, "*batch d n"]) -> tuple[Float[Tensor, "*batch d r"], Float[Tensor, "*batch r"]]:
    """Left singular vectors and values, r = min(d, n) of them, by QR and the small factor."""
    with one_thread():
        Q, R = torch.linalg.qr(W.double())
        U, values, _ = torch.linalg.svd(R)
    return Q @ U, values
