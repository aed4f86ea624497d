r"""Position directions over positions: are they sinusoids?

A left singular vector u of the position table is a curve over n positions. With its mean removed,

frequency       cycles per context of the sinusoid a + b cos(w t) + c sin(w t) that fits it best, from 1/2 to n/2;
r2              the share of the curve's variance which that sinusoid explains, in [0, 1];
concentration   the share of the discrete Fourier power in the largest frequency and its two neighbours, in [0, 1].

Chance is white noise searched over the same frequencies: means and p-values from seeded draws. A third quantity belongs
to the table as a whole: the share of the off-diagonal entries of P P^T that depends on the offset i - j alone, 1 for
sinusoidal tables, whose Gram matrix is sum_k cos(w_k (i - j)), and 2/n for independent rows.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float

from headspan.statistics import empirical_p_value

FEWEST_POSITIONS = 8
OVERSAMPLED = 4
DRAWS = 400
CHUNK = 512
LARGEST_GRAM = 8192


def sinusoid_fits(curves: Float[np.ndarray, "n k"]) -> dict[str, Float[np.ndarray, " k"]]:
    """Frequency, r2, dominant frequency of the discrete transform, and concentration of each column."""
    n = len(curves)
    centred = curves - curves.mean(0)
    total = np.maximum((centred**2).sum(0), np.finfo(float).tiny)
    best, where = np.zeros(curves.shape[1]), np.full(curves.shape[1], np.nan)
    frequencies = np.arange(OVERSAMPLED // 2, OVERSAMPLED * (n // 2) + 1) / OVERSAMPLED
    for start in range(0, len(frequencies), CHUNK):
        chunk = frequencies[start : start + CHUNK]
        r2 = _explained(centred, chunk) / total
        place = r2.argmax(0)
        top = r2[place, np.arange(len(place))]
        where = np.where(top > best, chunk[place], where)
        best = np.maximum(best, top)
    power = np.abs(np.fft.rfft(centred, axis=0))[1:] ** 2
    return {"frequency": where, "r2": np.minimum(best, 1.0), **_peaks(power)}


def _explained(centred: Float[np.ndarray, "n k"], frequencies: Float[np.ndarray, " f"]) -> Float[np.ndarray, "f k"]:
    """Sum of squares that a sinusoid of each frequency, with an offset, explains of each centred column."""
    n = len(centred)
    angle = 2 * np.pi * frequencies[:, None] * (np.arange(n) + 0.5) / n
    first, second = np.cos(angle), np.sin(angle)
    first -= first.mean(1, keepdims=True)
    second -= second.mean(1, keepdims=True)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second -= (second * first).sum(1, keepdims=True) * first
    # At the highest frequency one of the two waves vanishes at every position: it then explains nothing.
    size = np.linalg.norm(second, axis=1, keepdims=True)
    second = np.where(size > 1e-6, second / np.maximum(size, 1e-6), 0.0)
    found: np.ndarray = (first @ centred) ** 2 + (second @ centred) ** 2
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


def sinusoids_against_chance(
    curves: Float[np.ndarray, "n k"], seed: int, draws: int = DRAWS
) -> dict[str, Float[np.ndarray, " k"]]:
    """The fits of each column, r2 and concentration with `_chance` and `_p_value` (never below 1 / (draws + 1))."""
    found, noise = sinusoid_fits(curves), _noise_fits(len(curves), draws, seed)
    for name in ("r2", "concentration"):
        values, draw = found[name], noise[name]
        found[f"{name}_chance"] = np.full_like(values, draw.mean())
        found[f"{name}_p_value"] = empirical_p_value(values, draw[:, None])
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


def sinusoidal_gram(frequencies: Float[np.ndarray, " k"], n: int) -> Float[np.ndarray, "n n"]:
    """P P^T of a table with sin(w_k t) and cos(w_k t) as columns: sum_k cos(w_k (i - j)), a function of i - j alone."""
    lag = np.arange(n)
    by_lag = np.cos(lag[:, None] * frequencies).sum(1)
    gram: np.ndarray = by_lag[np.abs(lag[:, None] - lag)]
    return gram
