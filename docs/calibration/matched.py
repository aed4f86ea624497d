"""False-positive rates of the layer-matched permutation test, as in "are these heads hubs?".

Labels and values that have nothing to do with one another within layers, and untrained heads of which those with the
lowest identity score Tr(W_V W_O) are asked about. The latter break the null a little: a head that happens to use the
leading directions of an anisotropic stream has larger kernels and a larger score of either sign.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from docs.calibration.rows import Row, rows
from headspan.statistics import matched_test

COVERS: dict[str, tuple[str, ...]] = {}
PERMUTATIONS = 1999
LAYERS, HEADS, D, P, LOWEST = 6, 8, 48, 6, 7
LAYER = np.repeat(np.arange(LAYERS), HEADS)
Case = tuple[np.ndarray, np.ndarray]


def rates(seed: int = 0, draws: int = 2000) -> list[Row]:
    """Shares of p-values at or below each level, with 95 % Wilson intervals, under four nulls."""
    cases: dict[str, Callable[[np.random.Generator], Case]] = {
        "own null": lambda random: (random.normal(size=len(LAYER)), _labels(random)),
        "values and labels both follow depth, heavy tails": _with_depth,
        "anisotropic": lambda random: _untrained(random, 0.5),
        "decaying spectra": lambda random: _untrained(random, 1.0),
    }
    found: list[Row] = []
    for null, case in cases.items():
        random = np.random.default_rng(seed)
        p = []
        for draw in range(draws):
            values, chosen = case(random)
            p.append(matched_test(values, chosen, LAYER, PERMUTATIONS, seed=draw).p)
        found += rows("layer-matched permutation (hubs)", null, np.array(p))
    return found


def _labels(random: np.random.Generator) -> np.ndarray:
    return random.permutation(np.arange(len(LAYER)) < LOWEST)


def _with_depth(random: np.random.Generator) -> Case:
    chosen = random.random(len(LAYER)) < LAYER / (4 * LAYERS)
    chosen[-1] = True
    return 5.0 * LAYER + random.standard_t(2, size=len(LAYER)), chosen


def _untrained(random: np.random.Generator, power: float) -> Case:
    """Hub scores of untrained heads whose stream has axes of scale i^-power, and those of lowest identity score."""
    scale = np.arange(1, D + 1.0)[:, None] ** -power
    W = scale * random.standard_normal((4, len(LAYER), D, P))  # O transposed, Q, K, V
    written, read = np.linalg.qr(W[0]).Q, np.linalg.qr(W[1:]).Q
    kernel = np.square(np.einsum("sdi,rtdj->rstij", written, read, optimize=True)).sum((-2, -1))
    earlier = LAYER[:, None] < LAYER[None, :]
    excess = np.where(earlier, kernel, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        inlet = np.maximum(excess.sum(1) / earlier.sum(0) - P * P / D, 0).mean(0)
        outlet = np.maximum(excess.sum(2) / earlier.sum(1) - P * P / D, 0).mean(0)
    W_OV = W[3] @ W[0].mT
    identity = np.trace(W_OV, axis1=1, axis2=2) / np.linalg.norm(W_OV, axis=(1, 2))
    known = np.isfinite(inlet * outlet)
    order = np.argsort(np.where(known, identity, np.inf))
    return np.sqrt(inlet * outlet), np.isin(np.arange(len(LAYER)), order[:LOWEST])
