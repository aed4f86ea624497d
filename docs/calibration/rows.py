"""Rows of the calibration page: how often a p-value falls below a level, with its interval."""

from __future__ import annotations

import re
from typing import TypedDict

import numpy as np

LEVELS = (0.05, 0.01, 0.001)
NORMAL_975 = 1.959964


class Row(TypedDict):
    """One rate: of which test, under which null, at which level, found, its 95 % interval, and of how many."""

    test: str
    null: str
    level: float
    rate: float
    low: float
    high: float
    n: int


def wilson(rate: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate seen in n independent tests."""
    z = NORMAL_975
    center, half = rate + z**2 / (2 * n), z * (rate * (1 - rate) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, center - half) / (1 + z**2 / n), (center + half) / (1 + z**2 / n)


def rows(test: str, null: str, p: np.ndarray, levels: tuple[float, ...] = LEVELS) -> list[Row]:
    """The rates of p-values [n] at every level; a NaN (no test, or nothing found) counts as not significant."""
    found: list[Row] = []
    for level in levels:
        hits, n = int((p <= level).sum()), int(p.size)
        low, high = wilson(hits / n, n)
        found.append(Row(test=test, null=null, level=level, rate=hits / n, low=low, high=high, n=n))
    return found


def pooled_rows(lens: str, null: str, p: dict[str, list[np.ndarray]]) -> list[Row]:
    """Rows of a lens's p-values, each named by its variable, over all models; what is undefined is no test."""
    found: list[Row] = []
    for name, parts in p.items():
        values = np.concatenate(parts)
        known = values[~np.isnan(values)]
        found += rows(_test_name(lens, name), null, known) if known.size else []
    return found


def _test_name(lens: str, variable: str) -> str:
    """`vocabulary`, `top_mass_p` as the page says it: vocabulary top_mass."""
    return f"{lens} {re.sub(r'_p(?![a-z])', '', variable)}".strip()
