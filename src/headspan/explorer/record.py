"""What the scripts of a linked page know: the model's heads, their classes, its pairs, its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import xarray as xr

from headspan.explorer.head_grid import HeadGrid
from headspan.explorer.head_table import FACTS, head_table
from headspan.explorer.pair_table import STRONGEST_PAIRS, carried_pairings, pair_table
from headspan.explorer.profiles import profiles
from headspan.explorer.store import Store
from headspan.explorer.tables import PageTable, table_record
from headspan.lenses.affinity.tables import metrics_of

SUGGESTED = 6
"""How many hubs the empty side panel offers."""


@dataclass(frozen=True)
class PageData:
    """What a linked page is about, before it is written."""

    grid: HeadGrid
    results: Mapping[str, xr.Dataset | xr.DataTree]
    """By name of the lens."""
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Head label -> names of its classes."""
    tables: Sequence[PageTable] = ()
    """Tables besides those of heads and pairs."""


def page_record(data: PageData, store: Store) -> dict[str, Any]:
    """The record as plain values; arrays are in the store."""
    grid = data.grid
    heads = PageTable("heads", "Every head, one row each", head_table(grid, data.results))
    pairs, pair_rows = _pairs(data)
    tables = [heads, *pair_rows, *data.tables]
    return {
        "heads": {"layers": list(grid.layers), "heads": grid.n_heads, "kv_heads": grid.n_kv_heads},
        "classes": {label: list(names) for label, names in data.classes.items()},
        "pairs": pairs,
        "facts": [asdict(fact) for fact in FACTS if fact.column in heads.rows],
        "profiles": profiles(data.results, store, grid.large),
        "suggested": _suggested(heads),
        "tables": [table_record(table, store) for table in tables],
    }


def _pairs(data: PageData) -> tuple[dict[str, Any] | None, list[PageTable]]:
    result = data.results.get("affinity")
    if not isinstance(result, xr.DataTree) or not carried_pairings(result):
        return None, []
    most = STRONGEST_PAIRS if data.grid.large else None
    title = f"The {most:,} strongest pairs of heads" if most else "Every pair of heads that can compose"
    rows = PageTable("pairs", title, pair_table(result, most))
    pairings = carried_pairings(result)
    metrics = [m for m in ("pk", "cs") if all(m in metrics_of(result, pairing) for pairing in pairings)]
    return {"table": "pairs", "pairings": pairings, "metrics": metrics, "whole": most is None}, [rows]


def _suggested(heads: PageTable) -> list[str]:
    if "hub_rank" not in heads.rows:
        return []
    ranked = heads.rows[heads.rows["hub_score"] > 0].sort_values("hub_rank", kind="stable")
    return [str(label) for label in ranked["label"].head(SUGGESTED)]
