"""Haar p-values of the composition score and of `energy_alignment`, under rotations that are exactly random.

A corner of a Haar matrix is G R^-1 with G [p, q] normal, R^T R = G^T G + W, and W a Wishart matrix of d - p degrees of
freedom, so a draw costs q^3 and not d^3.
"""

from __future__ import annotations

import numpy as np

from docs.calibration.rows import Row, rows
from headspan.subspaces.nulls import rotated_trace_log_tail

COVERS = {"affinity": ("composition_score_p",)}
D, RANK = 192, 16
"""The shape of a head of GPT-2 small, a quarter as wide."""
LEVELS = (0.05, 0.01, 0.001, 0.0001)
POWERS = {"own null": (0.0, 0.0), "decaying spectra": (0.5, 0.5), "steep spectra": (1.0, 1.0), "one steep": (0.0, 2.0)}
"""Eigenvalues of A and of B fall like i^-power."""


def squared_corners(draws: int, p: int, q: int, d: int, random: np.random.Generator) -> np.ndarray:
    """Squared entries of p x q corners of Haar matrices, [draw, p, q]; p + q <= d."""
    corner = random.standard_normal((draws, p, q))
    lower = np.tril(random.standard_normal((draws, q, q)), -1)
    at = np.arange(q)
    lower[:, at, at] = np.sqrt(random.chisquare(d - p - at, size=(draws, q)))
    whole = np.linalg.cholesky(lower @ lower.mT + corner.mT @ corner)
    return np.linalg.solve(whole, corner.mT).mT ** 2


def decaying(power: float, rank: int = RANK) -> np.ndarray:
    """Shares of energy, [1, rank], proportional to i^-power."""
    values = np.arange(1, rank + 1) ** -power
    return values[None] / values.sum()


def rotated_p_values(traces: np.ndarray, a: np.ndarray, b: np.ndarray, d: int, upper: bool = True) -> np.ndarray:
    """p-values of drawn traces [n] of one pair of spectra [1, p] and [1, q]."""
    return np.exp(rotated_trace_log_tail(traces[:, None], np.broadcast_to(a, (len(traces), a.shape[1])), b, d, upper))[
        :, 0
    ]


def rates(seed: int, draws: int) -> list[Row]:
    """Rates under the four kinds of spectra; `draws` rotations serve them all."""
    random, step = np.random.default_rng(seed), 10_000
    found: dict[str, list[np.ndarray]] = {name: [] for name in POWERS}
    for start in range(0, draws, step):
        squares = squared_corners(min(step, draws - start), RANK, RANK, D, random)
        for name, (first, second) in POWERS.items():
            a, b = decaying(first), decaying(second)
            traces = np.einsum("i,nij,j->n", a[0], squares, b[0], optimize=True)
            found[name].append(rotated_p_values(traces, a, b, D))
    test = "composition score, Haar"
    return [row for name, p in found.items() for row in rows(test, name, np.concatenate(p), LEVELS)]
