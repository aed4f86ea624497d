r"""A table by itself: its singular values and directions in R^d, a random table beside it, and its rows.

1. Tables [rows, d]: the mean row first, then the d x d Gram matrix of the rows less that mean, both in float64 and in
   blocks of rows. The Gram matrix of the rows as stored is that plus rows * mean mean^T, which loses nothing.
2. Layer matrices [d, n]: the Gram matrix W W^T if n >= d, else QR and the singular values of the small factor.
3. Eigenvectors are the directions. By the Gram matrix singular values below about sqrt(d eps) of the largest, 4e-7 for
   d = 768, are rounding. Where a layer's matrix has some near that, its triangular factor is decomposed instead, which
   keeps all digits. The rank is decided by the noise of the stored dtype (`subspaces.rank`) or by a given tolerance; a
   table's tolerance is never below sqrt(d eps).
4. The null of a spectrum is a table of independent normal entries with the same shape and energy. For n rows of d
   entries with variance v, squared singular values follow the Marchenko-Pastur law: on
   [v (sqrt n - sqrt d)^2, v (sqrt n + sqrt d)^2] the density is sqrt((b - x)(x - a)) / x up to a factor. Its quantiles
   are taken numerically. The participation ratio is (E tr G)^2 / E tr G^2 = n d / (n + d + 1), the stable rank
   n d / (sqrt n + sqrt d)^2. Removing the mean row leaves n - 1 rows.
5. Independent normal rows have norms that vary by 1/sqrt(2d) of their size, and cosines with mean 0 and variance 1/d.
   Mean and mean square of the cosines over all pairs need no pairs: with unit rows U, they are
   (|sum U|^2 - n) / (n (n - 1)) and (|U^T U|_F^2 - n) / (n (n - 1)). The histogram is of seeded pairs, beside the exact
   law of a random cosine, whose density is (1 - c^2)^((d - 3)/2) up to a factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy import special  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.lenses.positions.schema import CENTERING, CENTERINGS, DIRECTION, TABLE
from headspan.subspaces import default_tolerance, noise_floor
from headspan.threads import one_thread

Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]
POINTS = 4096
COSINE_BINS = 80
NEAR = 30
"""Times the rounding of a Gram matrix: singular values above that are good to a thousandth."""
FAINT = 1e-3
"""Share of the largest singular value below which others are taken from the matrix where the Gram matrix does not do:
above it they are good to a millionth."""
PAIRS = 50_000
EDGES = np.linspace(-1, 1, COSINE_BINS + 1)


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


@dataclass(frozen=True)
class RandomTable:
    """What a random table of this shape has, with the energy of the real one."""

    singular_values: Float[np.ndarray, " rank"]
    participation_ratio: float
    stable_rank: float
    rank_90: int
    rank_99: int


def random_table(n: int, d: int, energy: float) -> RandomTable:
    """Expected spectrum and effective ranks; NaN and 0 where there are no rows."""
    rank = min(n, d)
    if rank == 0:
        return RandomTable(np.zeros(0), float("nan"), float("nan"), 0, 0)
    squares = _quantiles(n, d, rank)
    shares = np.cumsum(squares) / squares.sum()
    return RandomTable(
        singular_values=np.sqrt(squares * energy / squares.sum()),
        participation_ratio=n * d / (n + d + 1),
        stable_rank=n * d / (np.sqrt(n) + np.sqrt(d)) ** 2,
        rank_90=int(np.searchsorted(shares, 0.9) + 1),
        rank_99=int(np.searchsorted(shares, 0.99) + 1),
    )


def _quantiles(n: int, d: int, rank: int) -> Float[np.ndarray, " rank"]:
    """The law's quantiles at the middles of `rank` equal parts, descending.

    x = middle - half cos(t) turns the density into one without singular ends, half^2 sin(t)^2 / x.
    """
    middle, half = float(n + d), 2.0 * np.sqrt(n * d)
    t = (np.arange(POINTS) + 0.5) * np.pi / POINTS
    x = middle - half * np.cos(t)
    cumulative = np.cumsum(np.sin(t) ** 2 / x)
    cumulative = (cumulative - 0.5 * cumulative[0]) / cumulative[-1]
    quantiles: np.ndarray = np.interp((np.arange(rank) + 0.5) / rank, cumulative, x)[::-1].copy()
    return quantiles


def row_statistics(
    table: Float[Tensor, "row d"], mean_row: Float[Tensor, " d"] | None, scratch: int, seed: int
) -> dict[str, float | np.ndarray]:
    """Norms and cosines of the rows, less `mean_row` if given, with their null; NaN where there are no two rows.

    Rows that are zero have no cosine: they are counted and left out.
    """
    d = table.shape[1]
    norms, total, gram = [], torch.zeros(d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)
    for block in row_blocks(table, scratch):
        rows = (block.double() if mean_row is None else block.double() - mean_row).cpu()
        size = rows.norm(dim=1)
        norms.append(size.numpy())
        unit = rows[size > 0] / size[size > 0, None]
        total += unit.sum(0)
        gram.addmm_(unit.mT, unit)
    size = np.concatenate(norms)
    out = _norms(size, d)
    n = int((size > 0).sum())
    # With fewer than two rows there is no pair, and 0/0 says so.
    pairs = n * (n - 1) if n > 1 else np.nan
    mean, square = (float(total.square().sum()) - n) / pairs, (float(gram.square().sum()) - n) / pairs
    sd_of_mean = np.sqrt(2 / (d * pairs))
    out |= {"cosine_mean": mean, "cosine_mean_null": 0.0, "cosine_mean_z": mean / sd_of_mean}
    out |= {"cosine_sd": float(np.sqrt(max(square - mean**2, 0))) if n > 1 else np.nan, "cosine_sd_null": d**-0.5}
    out["cosine_density"] = _sampled(table, mean_row, size, seed)
    out["cosine_density_null"] = np.diff(_cosine_law(EDGES, d)) * COSINE_BINS / 2
    return out


def _norms(size: Float[np.ndarray, " row"], d: int) -> dict[str, float | np.ndarray]:
    mean = float(size.mean())
    variation = float(size.std()) / mean if mean > 0 else float("nan")
    return {
        "row_norm": mean,
        "row_norm_variation": variation,
        "row_norm_variation_null": (2 * d) ** -0.5,
        "zero_rows": float((size == 0).sum()),
    }


def _sampled(
    table: Float[Tensor, "row d"], mean_row: Float[Tensor, " d"] | None, size: Float[np.ndarray, " row"], seed: int
) -> Float[np.ndarray, " bin"]:
    """Density of the cosines of random pairs of different rows that are not zero."""
    there = np.flatnonzero(size > 0)
    if len(there) < 2:
        return np.full(COSINE_BINS, np.nan)
    rng = np.random.default_rng(seed)
    first = rng.integers(len(there), size=PAIRS)
    second = (first + rng.integers(1, len(there), size=PAIRS)) % len(there)
    counts = np.zeros(COSINE_BINS)
    for part in np.array_split(np.arange(PAIRS), 50):
        one, other = (_rows(table, mean_row, there[side[part]]) for side in (first, second))
        cosine = torch.nn.functional.cosine_similarity(one, other).cpu().numpy()
        counts += np.histogram(np.clip(cosine, -1, 1), EDGES)[0]
    return counts / PAIRS * COSINE_BINS / 2


def _rows(table: Tensor, mean_row: Tensor | None, index: np.ndarray) -> Tensor:
    rows = table[torch.as_tensor(index, device=table.device)].double()
    return rows if mean_row is None else rows - mean_row


def _cosine_law(c: Float[np.ndarray, " edge"], d: int) -> Float[np.ndarray, " edge"]:
    """P(cosine <= c) for two random directions: (1 + cosine) / 2 is Beta((d - 1)/2, (d - 1)/2)."""
    half = max(d - 1, 1) / 2
    law: np.ndarray = special.betainc(half, half, (1 + c) / 2)
    return law


def table_variables(
    rows: Mapping[str, Float[Tensor, "row d"]], tables: Mapping[str, TableSpectra], scratch: int, seed: int
) -> Variables:
    """Singular values, effective ranks, norms and cosines of rows [table, centering, ...], each with its null."""
    grid: dict[str, np.ndarray] = {}
    for i, (name, spectra) in enumerate(tables.items()):
        for j, centering in enumerate(CENTERINGS):
            mean = spectra.mean_row if centering == "centered" else None
            found = _spectrum_statistics(spectra, centering) | row_statistics(rows[name], mean, scratch, seed)
            for title, value in found.items():
                shape = (len(tables), len(CENTERINGS), *np.shape(value))
                grid.setdefault(title, np.full(shape, np.nan))[i, j] = value
    out: Variables = {}
    for title, values in grid.items():
        last = DIRECTION if title.startswith("singular_value") else "cosine"
        out[title] = ((TABLE, CENTERING, last)[: values.ndim], values)
    n_rows = np.array([spectra.n_rows for spectra in tables.values()])
    out["rows"] = ((TABLE,), n_rows)
    out["mean_share"] = ((TABLE,), np.array([spectra.mean_share for spectra in tables.values()]))
    out["mean_share_null"] = ((TABLE,), 1 / n_rows)
    return out


def _spectrum_statistics(spectra: TableSpectra, centering: str) -> dict[str, float | np.ndarray]:
    spectrum, rows = spectra[centering], spectra.n_rows - (centering == "centered")
    d, energy, weights = spectrum.d, float(spectrum.values.square().sum()), spectrum.weights
    null, there = random_table(rows, spectrum.d, energy), spectrum.rank > 0
    found: dict[str, tuple[float | np.ndarray, float | np.ndarray]] = {
        "participation_ratio": (float(1 / (weights**2).sum()) if there else np.nan, null.participation_ratio),
        "stable_rank": (float(1 / weights[0]) if there else np.nan, null.stable_rank),
        "rank_90": (spectrum.energy_rank(0.9), null.rank_90),
        "rank_99": (spectrum.energy_rank(0.99), null.rank_99),
        "rank": (spectrum.rank, min(rows, d)),
        "singular_value": (
            _padded(spectrum.values.cpu().numpy(), d),
            _padded(null.singular_values if energy > 0 else np.zeros(0), d),
        ),
    }
    return {f"{name}{part}": pair[place] for name, pair in found.items() for place, part in enumerate(("", "_null"))}


def _padded(values: np.ndarray, d: int) -> Float[np.ndarray, " d"]:
    return np.concatenate([values, np.full(d - len(values), np.nan)])
