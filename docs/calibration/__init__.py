"""False-positive rates of every p-value: one module a topic, each with `rates(seed, draws)`."""

from __future__ import annotations

from typing import Any

import numpy as np

LEVELS = (0.05, 0.01, 0.001)
Row = dict[str, Any]


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson 1927)."""
    if n == 0:
        return float("nan"), float("nan")
    z, rate = 1.959964, hits / n
    center, half = rate + z**2 / (2 * n), z * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    return tuple(float(np.clip((center + sign * half) / (1 + z**2 / n), 0, 1)) for sign in (-1, 1))  # type: ignore[return-value]


def rates_of(test: str, null: str, p: np.ndarray) -> list[Row]:
    """A row per level: how often p is at most that."""
    known = p[~np.isnan(p)]
    rows = []
    for level in LEVELS:
        hits = int((known <= level).sum())
        low, high = wilson(hits, len(known))
        rate = hits / max(len(known), 1)
        rows.append(
            {"test": test, "null": null, "level": level, "rate": rate, "low": low, "high": high, "n": len(known)}
        )
    return rows
