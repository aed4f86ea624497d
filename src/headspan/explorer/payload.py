"""What the component is given: one record of a model's heads, their classes, pairs, cards and tables.

The record is plain JSON; arrays are references into the archive that comes with it (`store`). Its form is declared
here, as types, and documented in `docs/report.md`; `SCHEMA` names the version, which the component checks. What stands
on a head's card, the schemas of the lenses say (`lenses/overview.py`): no lens is named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NotRequired, TypedDict

import numpy as np
import pandas as pd

from headspan.explorer.more_nodes import MoreNodes, more_nodes
from headspan.explorer.page_tables import PageTable, nulls_of, pair_table, pairs_result, table_record, tier_counts
from headspan.explorer.sentences import head_sentences, pair_texts
from headspan.explorer.store import Store
from headspan.heads import Heads
from headspan.lenses.overview import Curve, card_curves, card_facts, card_maps, card_texts, head_table
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, GREEN, ORANGE, VERMILION

SCHEMA = "headspan.explorer/1"
MOST_HEADS = 300
"""Of a model with more heads than this a page carries the strongest pairs alone."""
STRONGEST_PAIRS = 10_000
MOST_POINTS = 16
"""Of a large model a curve has so many points, evenly chosen, first and last among them."""
MOST_TOKENS = 48
"""Of a longer text a map shows the first ones."""
COLORS = {"W_Q": BLUE, "W_K": VERMILION, "W_V": GREEN, "W_O": ORANGE}
"""Roles have the colors of the pairings that end in them."""
NULL_NOTES = {
    "two-way": "Null: two-way, what these heads and layers share in general.",
    "reverse": "Null: reverse order, pairs of this model in non-causal order.",
}

Reference = dict[str, str]
"""`{"@": id}` of a block of the archive, with `shape` where there are several axes."""


class Grid(TypedDict):
    """Which heads there are: numbers of the layers, heads and kv heads of each."""

    layers: list[int]
    heads: int
    kv_heads: int


class Pairs(TypedDict):
    """The table of pairs, and how it is read."""

    table: str
    lens: str
    pairings: list[str]
    metrics: dict[str, str]
    """Name of each score to its words."""
    nulls: list[str]
    graph_null: str | None
    """The null behind the tiers; None where no null tells edges from background."""
    null_note: str
    whole: bool
    """Whether all pairs are there, or the strongest alone."""
    counts: dict[str, dict[str, dict[str, int]]]
    """Score to pairing to tier to number of pairs, over all pairs of the model."""


class HeadMap(TypedDict):
    """A map of every head over a text, such as attention."""

    lens: str
    title: str
    texts: list[str]
    words: list[int] | None
    """The word of every token; None where that is not known."""
    values: Reference
    """[head, row, column], 0 to 255 for 0 to 1."""
    labels: list[str]
    """The heads, in the order of the values."""


class Payload(TypedDict):
    """All of it."""

    schema: str
    model: dict[str, str]
    heads: Grid
    nodes: list[dict[str, Any]]
    """Nodes besides heads: id, kind (embedding, mlp, logits), layer, label."""
    more: dict[str, Any] | None
    """The table of edges that end or begin at these nodes."""
    classes: dict[str, list[str]]
    pairs: Pairs | None
    sentences: dict[str, str]
    interesting: str | None
    """The head whose card stands open at first."""
    facts: list[dict[str, str]]
    profiles: list[dict[str, Any]]
    maps: list[HeadMap]
    texts: list[dict[str, Any]]
    pair_texts: list[dict[str, Any]]
    tables: list[dict[str, Any]]
    runs: NotRequired[bool]
    """In a notebook: whether Python can run the model."""
    prompt: NotRequired[str]
    model_layers: NotRequired[list[int]]
    """In a notebook: all layers of the model, of which some are open."""


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
    """What a component is about, before it is written."""

    grid: HeadGrid
    results: Mapping[str, Result]
    """By name of the lens."""
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Head label -> names of its classes."""
    tables: Sequence[PageTable] = ()
    """Tables besides those of heads and pairs."""
    name: str = "model"


def payload(data: PageData, store: Store, later: Store | None = None) -> Payload:
    """The record of a model.

    Parameters
    ----------
    data
        What it is about.
    store
        Where the arrays go that are needed at once.
    later
        Where those of further tables go, which are only saved; by default to the same place.
    """
    grid = data.grid
    rows = head_table(grid.layers, grid.n_heads, grid.n_kv_heads, data.results)
    pairs, pair_rows = _pairs(data)
    more = more_nodes(data.results)
    tables = [PageTable("heads", "Every head, one row each", rows), *([] if pair_rows is None else [pair_rows])]
    tables += [] if more is None else [PageTable("edges", "Edges of embeddings, MLPs and logits", more.edges)]
    return {
        "schema": SCHEMA,
        "model": {"name": data.name},
        "heads": {"layers": list(grid.layers), "heads": grid.n_heads, "kv_heads": grid.n_kv_heads},
        "nodes": [] if more is None else more.nodes,
        "more": _more(more),
        "classes": {label: list(names) for label, names in data.classes.items()},
        "pairs": pairs,
        "sentences": head_sentences(data.results, data.classes),
        "interesting": _interesting(data, None if pair_rows is None else pair_rows.rows),
        "facts": [asdict(fact) for fact in card_facts(data.results)],
        "profiles": _profiles(data.results, store, grid.large),
        "maps": head_maps(data.results, store),
        "texts": [{"title": title, "of": of} for title, of in card_texts(data.results)],
        "pair_texts": pair_texts(data.results),
        "tables": [table_record(table, store) for table in tables]
        + [table_record(table, later or store) for table in data.tables],
    }


def _pairs(data: PageData) -> tuple[Pairs | None, PageTable | None]:
    result = pairs_result(data.results)
    if result is None:
        return None, None
    most = STRONGEST_PAIRS if data.grid.large else None
    title = f"The {most:,} strongest pairs of heads" if most else "Every pair of heads that can compose"
    every = pair_table(result)
    rows = pair_table(result, most) if most else every
    metrics = [name for name in result.lens.schema.metrics if name in rows and rows[name].notna().all()]
    pairings = [str(name) for name in rows["pairing"].unique()]
    declared = result.lens.schema.declared(pairings[0]) if pairings else {}
    part = result.lens.part("wiring")
    graph_null = None if part is None else part.graph_null(result)
    reason = str(result.attrs.get("null_reason", "")).removesuffix(".")
    note = NULL_NOTES.get(graph_null or "", "")
    record: Pairs = {
        "table": "pairs",
        "lens": result.lens.name,
        "pairings": pairings,
        "metrics": {name: declared[name].long_name for name in metrics},
        "nulls": nulls_of(result),
        "graph_null": graph_null,
        "null_note": f"{note} {reason[0].upper()}{reason[1:]}." if reason else note,
        "whole": most is None,
        "counts": {metric: tier_counts(every, metric) for metric in metrics},
    }
    return record, PageTable("pairs", title, rows)


def _interesting(data: PageData, pairs: pd.DataFrame | None) -> str | None:
    """The head with most pairs that are strong, then that stand out; else a head of a class; else a hub; else any."""
    if pairs is not None and len(pairs):
        tier = next((name for name in pairs.columns if name.endswith("_tier")), None)
        if tier is not None:
            # Any number of pairs that stand out weighs less than one strong pair.
            weights = pairs[tier].map({"strong": 1e6, "stands out": 1.0}).fillna(0.0)
            totals = weights.groupby(pairs["src"]).sum().add(weights.groupby(pairs["dst"]).sum(), fill_value=0)
            totals = totals[[label for label in totals.index if "K" not in label]]
            if len(totals) and totals.max() > 0:
                return str(totals.idxmax())
    # Where no pair stands out, no head is known to be a hub either.
    classed = next((label for label, names in data.classes.items() if names), None)
    if classed is not None:
        return classed
    hubs = next((one.table("hubs") for one in data.results.values() if "hubs" in one.tables), None)
    if hubs is not None and (hubs["hub_score"] > 0).any():
        return str(hubs.loc[hubs["hub_score"].idxmax(), "head"])
    return f"L{data.grid.layers[0]}H0" if data.grid.layers else None


def _profiles(results: Mapping[str, Result], store: Store, thin: bool) -> list[dict[str, Any]]:
    """Curves that a card draws for a head, those of one title together."""
    found: dict[str, dict[str, Any]] = {}
    for curve in card_curves(results):
        scale = {"unit": "°", "top": 90} if curve.in_radians else {}
        about = found.setdefault(curve.title, {"title": curve.title, "across": "index", "lines": [], **scale})
        about["lines"].append(_line(curve, store, thin))
    return list(found.values())


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


def head_maps(results: Mapping[str, Result], store: Store) -> list[HeadMap]:
    """Maps of heads over the text that the model was run on."""
    return [
        {
            "lens": one.lens,
            "title": one.title,
            "labels": list(one.labels),
            "texts": list(one.texts[:MOST_TOKENS]),
            "words": None if one.words is None else list(one.words[:MOST_TOKENS]),
            "values": store.array(_levels(one.values[:, :MOST_TOKENS, :MOST_TOKENS])),
        }
        for one in card_maps(results)
    ]


def _levels(values: np.ndarray) -> np.ndarray:
    """Shares as 256 levels: these are drawn, not saved. Always unsigned, whatever the numbers are."""
    levels: np.ndarray = np.rint(255 * np.nan_to_num(values).clip(0, 1)).astype(np.uint8)
    return levels


def _more(more: MoreNodes | None) -> dict[str, Any] | None:
    return None if more is None else {"table": "edges", "metric": more.metric, "words": more.words}
