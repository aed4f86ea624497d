r"""The position table's leading directions: do they use few coordinates, and are they sinusoids over positions?

1. Sparsity of single directions (`statistics.sparsity`). What the top k directions use together is the leverage of each
   coordinate, the diagonal of the projector on their span, which does not depend on the choice of basis; its sum is k,
   and k/d is its average.
2. A left singular vector of the table is a curve over n positions. With its mean removed,

   frequency       cycles per context of the sinusoid a + b cos(w t) + c sin(w t) that fits it best, from 1/2 to n/2;
   r2              the share of the curve's variance which that sinusoid explains, in [0, 1];
   concentration   the share of the discrete Fourier power in the largest frequency and its two neighbors, in [0, 1].

   The null is white noise searched over the same frequencies: means and p-values from seeded draws.
3. The share of the off-diagonal entries of P P^T that depends on the offset i - j alone: 1 for sinusoidal tables, whose
   Gram matrix is sum_k cos(w_k (i - j)), and 2/n for independent rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from headspan.lenses.positions.schema import CENTERING, CENTERINGS
from headspan.lenses.positions.spectra import TableSpectra, Variables
from headspan.statistics import empirical_p_value
from headspan.statistics.sparsity import DRAWS, SHARE, sparsity_against_null

TOP = "top_direction"
SHOWN = 5
"""So many leading directions are kept entry by entry, for figures."""
FEWEST_POSITIONS = 8
OVERSAMPLED = 4
WAVE_DRAWS = 400
CHUNK = 512
LARGEST_GRAM = 8192


def sorted_mass_null(d: int, seed: int, draws: int = 200) -> Float[np.ndarray, " d"]:
    """Mass of a random direction's 1, 2, ... d largest coordinates, on average."""
    masses = np.random.default_rng(seed).standard_normal((draws, d)) ** 2
    ordered = np.sort(masses / masses.sum(1, keepdims=True), axis=1)[:, ::-1]
    mean: np.ndarray = np.cumsum(ordered, axis=1).mean(0)
    return mean


@dataclass(frozen=True)
class SharedCoordinates:
    """The coordinates that the top k directions use together, and what the other table has on them."""

    leverage: Float[np.ndarray, " d"]
    chosen: Bool[np.ndarray, " d"]
    """The fewest coordinates that hold 90 % of the leverage."""
    count: int
    count_null: float
    """How many it takes for a random k-dimensional space, on average."""
    energy: float
    """The other table's share of energy on them."""
    energy_null: float
    energy_z: float
    energy_p: float


def shared_coordinates(
    directions: Float[np.ndarray, "d k"], other_energy: Float[np.ndarray, " d"] | None, seed: int, draws: int = DRAWS
) -> SharedCoordinates:
    """Leverages, the shared coordinates, and the other table's energy there against random sets of as many coordinates.

    The mean of a random set's share is |S|/d exactly, and its variance that of sampling without replacement; the
    p-value is two-sided, from drawn sets. NaN without another table, or if the set is everything.
    """
    leverage = (directions**2).sum(1)
    d = len(leverage)
    chosen = _holding(leverage)
    size = int(chosen.sum())
    count_null = _random_count(d, directions.shape[1], seed)
    if other_energy is None or not other_energy.sum() > 0 or size in (0, d):
        return SharedCoordinates(leverage, chosen, size, count_null, *[float("nan")] * 4)
    shares = other_energy / other_energy.sum()
    energy, expected = float(shares[chosen].sum()), size / d
    sd = float(np.sqrt(size * (d - size) / (d - 1) * shares.var()))
    rng = np.random.default_rng(seed)
    random = np.array([shares[rng.permutation(d)[:size]].sum() for _ in range(draws)])
    p = float(empirical_p_value(abs(energy - expected), np.abs(random - expected), slack=1e-15))
    z = (energy - expected) / sd if sd > 1e-12 else float("nan")
    return SharedCoordinates(leverage, chosen, size, count_null, energy, expected, z, p)


def _holding(leverage: Float[np.ndarray, " d"]) -> Bool[np.ndarray, " d"]:
    chosen = np.zeros(len(leverage), dtype=bool)
    if leverage.sum() > 0:
        order = np.argsort(-leverage, kind="stable")
        share = np.cumsum(leverage[order]) / leverage.sum()
        chosen[order[: int((share >= SHARE - 1e-12).argmax()) + 1]] = True
    return chosen


@lru_cache(maxsize=32)
def _random_count(d: int, k: int, seed: int, draws: int = 20) -> float:
    if k == 0:
        return float("nan")
    rng = np.random.default_rng(seed)
    bases = (np.linalg.qr(rng.standard_normal((d, k)))[0] for _ in range(draws))
    return float(np.mean([_holding((basis**2).sum(1)).sum() for basis in bases]))


def sinusoid_fits(curves: Float[np.ndarray, "n k"]) -> dict[str, Float[np.ndarray, " k"]]:
    """Frequency, r2, dominant frequency of the discrete transform, and concentration of each column."""
    n = len(curves)
    centered = curves - curves.mean(0)
    total = np.maximum((centered**2).sum(0), np.finfo(float).tiny)
    best, where = np.zeros(curves.shape[1]), np.full(curves.shape[1], np.nan)
    frequencies = np.arange(OVERSAMPLED // 2, OVERSAMPLED * (n // 2) + 1) / OVERSAMPLED
    for start in range(0, len(frequencies), CHUNK):
        chunk = frequencies[start : start + CHUNK]
        r2 = _explained(centered, chunk) / total
        place = r2.argmax(0)
        top = r2[place, np.arange(len(place))]
        where = np.where(top > best, chunk[place], where)
        best = np.maximum(best, top)
    power = np.abs(np.fft.rfft(centered, axis=0))[1:] ** 2
    return {"frequency": where, "r2": np.minimum(best, 1.0), **_peaks(power)}


def _explained(centered: Float[np.ndarray, "n k"], frequencies: Float[np.ndarray, " f"]) -> Float[np.ndarray, "f k"]:
    """Sum of squares that a sinusoid of each frequency, with an offset, explains of each centered column."""
    n = len(centered)
    angle = 2 * np.pi * frequencies[:, None] * (np.arange(n) + 0.5) / n
    first, second = np.cos(angle), np.sin(angle)
    first -= first.mean(1, keepdims=True)
    second -= second.mean(1, keepdims=True)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second -= (second * first).sum(1, keepdims=True) * first
    # At the highest frequency one of the two waves vanishes at every position: it then explains nothing.
    size = np.linalg.norm(second, axis=1, keepdims=True)
    second = np.where(size > 1e-6, second / np.maximum(size, 1e-6), 0.0)
    found: np.ndarray = (first @ centered) ** 2 + (second @ centered) ** 2
    return found


def _peaks(power: Float[np.ndarray, "f k"]) -> dict[str, Float[np.ndarray, " k"]]:
    peak, columns = power.argmax(0), np.arange(power.shape[1])
    wide = np.pad(power, ((1, 1), (0, 0)))
    around = wide[peak, columns] + wide[peak + 1, columns] + wide[peak + 2, columns]
    total = np.maximum(power.sum(0), np.finfo(float).tiny)
    return {"dominant_frequency": peak + 1.0, "concentration": around / total}


@lru_cache(maxsize=8)
def _noise_fits(n: int, draws: int, seed: int) -> dict[str, np.ndarray]:
    return sinusoid_fits(np.random.default_rng(seed).standard_normal((n, draws)))


def sinusoids_against_null(
    curves: Float[np.ndarray, "n k"], seed: int, draws: int = WAVE_DRAWS
) -> dict[str, Float[np.ndarray, " k"]]:
    """The fits of each column, r2 and concentration with `_null` and `_p` (never below 1 / (draws + 1))."""
    found, noise = sinusoid_fits(curves), _noise_fits(len(curves), draws, seed)
    for name in ("r2", "concentration"):
        values, draw = found[name], noise[name]
        found[f"{name}_null"] = np.full_like(values, draw.mean())
        found[f"{name}_p"] = empirical_p_value(values, draw[:, None])
    return found


def offset_share(table: Float[np.ndarray, "n d"]) -> float:
    """The share of the off-diagonal part of P P^T that depends on i - j alone, in [0, 1]; about 2/n for random rows.

    NaN for fewer than two rows or more than 8192, where P P^T is not formed.
    """
    n = len(table)
    if not 2 <= n <= LARGEST_GRAM:
        return float("nan")
    gram = table @ table.T
    along = [np.diagonal(gram, lag) for lag in range(1, n)]
    total = sum(float((values**2).sum()) for values in along)
    kept = sum(len(values) * float(values.mean()) ** 2 for values in along)
    return kept / total if total > 0 else float("nan")


def sparsity_variables(P: TableSpectra, E: TableSpectra | None, k: int, seed: int) -> Variables:
    """Sparsity [centering, top_direction] of single directions, and the coordinates that the top k share."""
    d = P.stored.d
    grid: dict[str, np.ndarray] = {}
    shared: dict[str, list[object]] = {}
    for place, centering in enumerate(CENTERINGS):
        directions = P[centering].directions[:, :k].cpu().numpy()
        for name, values in sparsity_against_null(directions, seed).items():
            grid.setdefault(f"sparsity_{name}", np.full((len(CENTERINGS), k), np.nan))[place, : len(values)] = values
        other = None if E is None else E.coordinate_energy[place]
        found = shared_coordinates(directions, other, seed)
        for name in ("leverage", "chosen", "count", "count_null", "energy", "energy_null", "energy_z", "energy_p"):
            shared.setdefault(name, []).append(getattr(found, name))
    out: Variables = {name: ((CENTERING, TOP), values) for name, values in grid.items()}
    for name, listed in shared.items():
        array = np.array(listed)
        out[f"coordinate_{name}"] = ((CENTERING, "coordinate")[: array.ndim], array)
    out["coordinate_leverage_null"] = ((CENTERING,), np.array([min(k, P[c].rank) / d for c in CENTERINGS]))
    kept = [_columns(P[c].directions.cpu().numpy(), SHOWN) for c in CENTERINGS]
    out["direction_entry"] = ((CENTERING, "shown_direction", "coordinate"), np.stack(kept))
    out["sorted_mass_null"] = (("coordinate",), sorted_mass_null(d, seed))
    return out


def context_obstacle(family: str, n_positions: int, stack: str) -> str | None:
    """Why directions have no meaning as curves over positions, in one line."""
    if family == "vit" or stack == "vision":
        return "positions are patches of an image, not places on a line"
    if n_positions < FEWEST_POSITIONS:
        return f"a sinusoid needs at least {FEWEST_POSITIONS} positions, found {n_positions}"
    return None


def context_variables(W_pos: Float[Tensor, "position d"], P: TableSpectra, k: int, seed: int) -> Variables:
    """Sinusoid fits [centering, top_direction] of the left singular vectors, and the share that depends on offsets."""
    grid: dict[str, np.ndarray] = {}
    curves, shares = [], []
    for place, centering in enumerate(CENTERINGS):
        rows = W_pos.double() - P.mean_row if centering == "centered" else W_pos.double()
        spectrum = P[centering]
        # U = X v / s, as good as s is large, and these are the largest.
        left = (rows @ spectrum.directions[:, :k] / spectrum.values[:k]).cpu().numpy()
        for name, values in sinusoids_against_null(left, seed).items():
            grid.setdefault(f"wave_{name}", np.full((len(CENTERINGS), k), np.nan))[place, : len(values)] = values
        curves.append(_columns(left, SHOWN))
        shares.append(offset_share(rows.cpu().numpy()))
    out: Variables = {name: ((CENTERING, TOP), values) for name, values in grid.items()}
    out["curve"] = ((CENTERING, "shown_direction", "position"), np.stack(curves))
    out["offset_share"] = ((CENTERING,), np.array(shares))
    out["offset_share_null"] = ((), np.array(2 / len(W_pos)))
    return out


def _columns(values: Float[np.ndarray, "n k"], count: int) -> Float[np.ndarray, "count n"]:
    """The first columns as rows, NaN where there are fewer."""
    out = np.full((count, len(values)), np.nan)
    kept = values[:, :count]
    out[: kept.shape[1]] = kept.T
    return out
