"""What the scripts of a linked page know: the model's heads, their classes, its pairs, its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headspan.explorer.page_tables import PageTable, nulls_of, pair_table, pairs_result, table_record
from headspan.explorer.store import Store
from headspan.heads import Heads
from headspan.lenses.overview import Curve, card_curves, card_facts, head_table
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, GREEN, ORANGE, VERMILION

SUGGESTED = 6
"""How many heads the empty side panel offers."""
MOST_HEADS = 300
"""Of a model with more heads than this a page carries the strongest pairs alone."""
STRONGEST_PAIRS = 5000
MOST_POINTS = 16
"""Of a large model a curve has so many points, evenly chosen, first and last among them."""
COLORS = {"W_Q": BLUE, "W_K": VERMILION, "W_V": GREEN, "W_O": ORANGE}
"""Roles have the colors of the pairings that end in them."""


@dataclass(frozen=True)
class HeadGrid:
    """Which heads a model has, as far as a page needs to know."""

    layers: Sequence[int]
    n_heads: int
    n_kv_heads: int

    @classmethod
    def of(cls, heads: Heads) -> HeadGrid:
        """The grid of a model's heads."""
        return cls([int(layer) for layer in heads.layers], heads.n_heads, heads.n_kv_heads)

    @property
    def large(self) -> bool:
        """Whether a page carries only the strongest pairs."""
        return len(self.layers) * self.n_heads > MOST_HEADS


@dataclass(frozen=True)
class PageData:
    """What a linked page is about, before it is written."""

    grid: HeadGrid
    results: Mapping[str, Result]
    """By name of the lens."""
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Head label -> names of its classes."""
    tables: Sequence[PageTable] = ()
    """Tables besides those of heads and pairs."""


def page_record(data: PageData, store: Store) -> dict[str, Any]:
    """The record as plain values; arrays are in the store."""
    grid = data.grid
    rows = head_table(grid.layers, grid.n_heads, grid.n_kv_heads, data.results)
    heads = PageTable("heads", "Every head, one row each", rows)
    pairs, pair_rows = _pairs(data)
    tables = [heads, *pair_rows, *data.tables]
    return {
        "heads": {"layers": list(grid.layers), "heads": grid.n_heads, "kv_heads": grid.n_kv_heads},
        "classes": {label: list(names) for label, names in data.classes.items()},
        "pairs": pairs,
        "facts": [asdict(fact) for fact in card_facts(data.results)],
        "profiles": _profiles(data.results, store, grid.large),
        "suggested": _suggested(data.results),
        "tables": [table_record(table, store) for table in tables],
    }


def _pairs(data: PageData) -> tuple[dict[str, Any] | None, list[PageTable]]:
    result = pairs_result(data.results)
    if result is None:
        return None, []
    most = STRONGEST_PAIRS if data.grid.large else None
    title = f"The {most:,} strongest pairs of heads" if most else "Every pair of heads that can compose"
    rows = pair_table(result, most)
    metrics = [name for name in result.lens.schema.metrics if name in rows and rows[name].notna().all()]
    pairings = [str(name) for name in rows["pairing"].unique()]
    declared = result.lens.schema.declared(pairings[0]) if pairings else {}
    record = {
        "table": "pairs",
        "lens": result.lens.name,
        "pairings": pairings,
        "metrics": {name: declared[name].long_name for name in metrics},
        "nulls": nulls_of(result),
        "whole": most is None,
    }
    return record, [PageTable("pairs", title, rows)]


def _suggested(results: Mapping[str, Result]) -> list[str]:
    """The strongest heads of the first lens that ranks heads within pairs: its hubs."""
    result = pairs_result(results)
    if result is None or "hubs" not in result.tables:
        return []
    hubs = result.table("hubs")
    ranked = hubs[hubs["hub_score"] > 0].sort_values("hub_score", ascending=False, kind="stable")
    return [str(label) for label in ranked["head"].head(SUGGESTED)]


def _profiles(results: Mapping[str, Result], store: Store, thin: bool) -> list[dict[str, Any]]:
    """Curves that the side panel draws for a head, those of one title together."""
    found: dict[str, dict[str, Any]] = {}
    for curve in card_curves(results):
        about = found.setdefault(curve.title, {"title": curve.title, "across": "number", "lines": [], **_scale(curve)})
        about["lines"].append(_line(curve, store, thin))
    return list(found.values())


def _scale(curve: Curve) -> dict[str, Any]:
    return {"unit": "°", "top": 90} if curve.in_radians else {}


def _line(curve: Curve, store: Store, thin: bool) -> dict[str, Any]:
    """[head, point] in single precision: these are drawn, not saved."""
    values = np.degrees(curve.values) if curve.in_radians else curve.values
    if thin and values.shape[1] > MOST_POINTS:
        values = values[:, np.linspace(0, values.shape[1] - 1, MOST_POINTS).round().astype(int)]
    return {
        "name": "expected" if curve.is_null else curve.name or "this head",
        "color": CHANCE if curve.is_null else COLORS.get(curve.name, BLUE),
        "dashed": curve.is_null,
        "kv": curve.kv,
        "values": store.array(values.astype(np.float32)),
    }
