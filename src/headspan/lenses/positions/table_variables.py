"""Variables about the tables alone: spectra, effective ranks, means, rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from torch import Tensor

from headspan.lenses.positions.random_table import RandomTable, random_table
from headspan.lenses.positions.rows import row_statistics
from headspan.lenses.positions.spectrum import Spectrum, TableSpectra

Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]
CENTRINGS = ("stored", "centred")
TABLE, CENTRING, DIRECTION = "table", "centring", "direction"


def spectrum_variables(tables: Mapping[str, TableSpectra], d: int) -> Variables:
    """Singular values and effective ranks [table, centring, ...], each with its chance."""
    shape = (len(tables), len(CENTRINGS))
    grid: dict[str, np.ndarray] = {}
    for i, spectra in enumerate(tables.values()):
        for j, centring in enumerate(CENTRINGS):
            for name, value in _statistics(spectra, centring, d).items():
                grid.setdefault(name, np.full((*shape, *np.shape(value)), np.nan))[i, j] = value
    out: Variables = {
        name: ((TABLE, CENTRING, DIRECTION) if values.ndim == 3 else (TABLE, CENTRING), values)
        for name, values in grid.items()
    }
    rows = np.array([spectra.n_rows for spectra in tables.values()])
    out["rows"] = ((TABLE,), rows)
    out["mean_share"] = ((TABLE,), np.array([spectra.mean_share for spectra in tables.values()]))
    out["mean_share_chance"] = ((TABLE,), 1 / rows)
    return out


def _statistics(spectra: TableSpectra, centring: str, d: int) -> dict[str, float | np.ndarray]:
    spectrum = spectra[centring]
    rows = spectra.n_rows - (centring == "centred")
    energy = float(spectrum.values.square().sum())
    chance = random_table(rows, d, energy)
    found: dict[str, tuple[float | np.ndarray, float | np.ndarray]] = {
        "participation_ratio": (_participation(spectrum), chance.participation_ratio),
        "stable_rank": (_stable_rank(spectrum), chance.stable_rank),
        "rank_90": (spectrum.energy_rank(0.9), chance.rank_90),
        "rank_99": (spectrum.energy_rank(0.99), chance.rank_99),
        "rank": (spectrum.rank, min(rows, d)),
        "singular_value": (_padded(spectrum.values.cpu().numpy(), d), _chance_values(chance, energy, d)),
    }
    return {
        name + part: value for name, pair in found.items() for part, value in zip(("", "_chance"), pair, strict=True)
    }


def _chance_values(chance: RandomTable, energy: float, d: int) -> Float[np.ndarray, " d"]:
    return _padded(chance.singular_values if energy > 0 else np.zeros(0), d)


def _padded(values: np.ndarray, d: int) -> Float[np.ndarray, " d"]:
    return np.concatenate([values, np.full(d - len(values), np.nan)])


def _participation(spectrum: Spectrum) -> float:
    return float(1 / (spectrum.weights**2).sum()) if spectrum.rank else float("nan")


def _stable_rank(spectrum: Spectrum) -> float:
    return float(1 / spectrum.weights[0]) if spectrum.rank else float("nan")


def row_variables(
    rows: Mapping[str, Float[Tensor, "row d"]], tables: Mapping[str, TableSpectra], scratch: int, seed: int
) -> Variables:
    """Norms and cosines of rows [table, centring, ...]."""
    grid: dict[str, np.ndarray] = {}
    for i, (name, values) in enumerate(rows.items()):
        for j, centring in enumerate(CENTRINGS):
            mean = tables[name].mean_row if centring == "centred" else None
            for title, value in row_statistics(values, mean, scratch, seed).items():
                shape = (len(rows), len(CENTRINGS), *np.shape(value))
                grid.setdefault(title, np.full(shape, np.nan))[i, j] = value
    dims = (TABLE, CENTRING, "cosine")
    return {title: (dims[: values.ndim], values) for title, values in grid.items()}
