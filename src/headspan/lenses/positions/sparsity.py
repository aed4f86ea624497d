r"""Do the position table's directions use few coordinates of the stream?

Of a unit vector v in R^d, with masses m_i = v_i^2:

participation    1 / sum m_i^2, in [1, d]: the number of coordinates that share the mass. About d/3 by chance.
coordinates_90   how many of the largest masses make 90 %, in [1, d].
gini             of the masses, in [0, 1 - 1/d]: 0 if all are equal. About 2/pi = 0.64 by chance.

Chance is a uniformly random direction: means, standard deviations and p-values (of being at least as sparse) from
seeded draws. What the top k directions use together is the leverage of each coordinate, the diagonal of the projector
on their span, which does not depend on the choice of basis; its sum is k, and k/d is its average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float

from headspan.statistics import empirical_p_value

MEASURES = ("participation", "coordinates_90", "gini")
SPARSER_IS_LESS = {"participation": True, "coordinates_90": True, "gini": False}
DRAWS = 2000
SHARE = 0.9


def sparsity_measures(masses: Float[np.ndarray, "n d"]) -> dict[str, Float[np.ndarray, " n"]]:
    """The three measures of rows that each add up to 1."""
    ordered = np.sort(masses, axis=1)
    d = masses.shape[1]
    reached = np.cumsum(ordered[:, ::-1], axis=1) >= SHARE - 1e-12
    return {
        "participation": 1 / (masses**2).sum(1),
        "coordinates_90": reached.argmax(1) + 1.0,
        "gini": (ordered * (2 * np.arange(1, d + 1) - d - 1)).sum(1) / d,
    }


@lru_cache(maxsize=8)
def _random_measures(d: int, draws: int, seed: int) -> dict[str, np.ndarray]:
    masses = np.random.default_rng(seed).standard_normal((draws, d)) ** 2
    return sparsity_measures(masses / masses.sum(1, keepdims=True))


def sparsity_against_chance(
    directions: Float[np.ndarray, "d k"], seed: int, draws: int = DRAWS
) -> dict[str, Float[np.ndarray, " k"]]:
    """Each measure of each direction with `_chance`, `_z` and `_p_value`, the last never below 1 / (draws + 1)."""
    found, random = sparsity_measures(directions.T**2), _random_measures(directions.shape[0], draws, seed)
    out: dict[str, np.ndarray] = {}
    for name, values in found.items():
        draw = random[name]
        sign = -1 if SPARSER_IS_LESS[name] else 1
        out[name] = values
        out[f"{name}_chance"] = np.full_like(values, draw.mean())
        out[f"{name}_z"] = (values - draw.mean()) / draw.std() if draw.std() > 0 else np.full_like(values, np.nan)
        out[f"{name}_p_value"] = empirical_p_value(sign * values, sign * draw[:, None])
    return out


def sorted_mass_chance(d: int, seed: int, draws: int = 200) -> Float[np.ndarray, " d"]:
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
    count_chance: float
    """How many it takes for a random k-dimensional space, on average."""
    energy: float
    """The other table's share of energy on them."""
    energy_chance: float
    energy_z: float
    energy_p_value: float


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
    count_chance = _random_count(d, directions.shape[1], seed)
    if other_energy is None or not other_energy.sum() > 0 or size in (0, d):
        return SharedCoordinates(leverage, chosen, count_chance, *[float("nan")] * 4)
    shares = other_energy / other_energy.sum()
    energy, chance = float(shares[chosen].sum()), size / d
    sd = float(np.sqrt(size * (d - size) / (d - 1) * shares.var()))
    rng = np.random.default_rng(seed)
    random = np.array([shares[rng.permutation(d)[:size]].sum() for _ in range(draws)])
    p_value = float(empirical_p_value(abs(energy - chance), np.abs(random - chance), slack=1e-15))
    z = (energy - chance) / sd if sd > 1e-12 else float("nan")
    return SharedCoordinates(leverage, chosen, count_chance, energy, chance, z, p_value)


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
