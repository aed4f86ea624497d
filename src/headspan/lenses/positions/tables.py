r"""What is kept of a table: its spectrum beside that of a random table, and its rows beside random rows.

1. The null of a spectrum is a table of independent normal entries with the same shape and energy. For n rows of d
   entries with variance v, squared singular values follow the Marchenko-Pastur law: on
   [v (sqrt n - sqrt d)^2, v (sqrt n + sqrt d)^2] the density is sqrt((b - x)(x - a)) / x up to a factor. Its quantiles
   are taken numerically. The participation ratio is (E tr G)^2 / E tr G^2 = n d / (n + d + 1), the stable rank
   n d / (sqrt n + sqrt d)^2. Removing the mean row leaves n - 1 rows.
2. Independent normal rows have norms that vary by 1/sqrt(2d) of their size, and cosines with mean 0 and variance 1/d.
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
from headspan.lenses.positions.spectra import TableSpectra, Variables, row_blocks

POINTS = 4096
COSINE_BINS = 80
PAIRS = 50_000
EDGES = np.linspace(-1, 1, COSINE_BINS + 1)


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
