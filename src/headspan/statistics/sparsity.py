r"""How few coordinates a unit vector uses, beside random directions.

Of a unit vector v in R^d, with masses m_i = v_i^2:

participation    1 / sum m_i^2, in [1, d]: the number of coordinates that share the mass. About d/3 if v is random.
coordinates_90   how many of the largest masses make 90 %, in [1, d].
gini             of the masses, in [0, 1 - 1/d]: 0 if all are equal. About 2/pi = 0.64 if v is random.

The null is a uniformly random direction: means, standard deviations and p-values (of being at least as sparse) from
seeded draws.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float

from headspan.statistics.permutation import empirical_p_value

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


def sparsity_against_null(
    directions: Float[np.ndarray, "d k"], seed: int, draws: int = DRAWS
) -> dict[str, Float[np.ndarray, " k"]]:
    """Each measure of each direction with `_null`, `_z` and `_p`, the last never below 1 / (draws + 1)."""
    found, random = sparsity_measures(directions.T**2), _random_measures(directions.shape[0], draws, seed)
    out: dict[str, np.ndarray] = {}
    for name, values in found.items():
        draw = random[name]
        sign = -1 if SPARSER_IS_LESS[name] else 1
        out[name] = values
        out[f"{name}_null"] = np.full_like(values, draw.mean())
        out[f"{name}_z"] = (values - draw.mean()) / draw.std() if draw.std() > 0 else np.full_like(values, np.nan)
        out[f"{name}_p"] = empirical_p_value(sign * values, sign * draw[:, None])
    return out
