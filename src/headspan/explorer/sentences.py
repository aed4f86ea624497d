"""One sentence per head that says what it seems to be, and lines about single pairs, out of what the lenses say.

A lens that has something to say about every head has a module `card` with `phrases(result)`: head label to a phrase
that follows "it", such as "writes mostly to the keys of L5H1". Lines about pairs come from tables with `src` and `dst`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import xarray as xr

from headspan.dims import COMPOSING
from headspan.explorer.page_tables import pairs_result
from headspan.finding import significance
from headspan.result import Result

MOST_ROWS = 3000
"""Of a table of more rows than this, only the significant ones are told, the most significant first."""
SIGNIFICANT = 0.05


def head_sentences(results: Mapping[str, Result], classes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Head label to its sentence; heads that nothing is said of are left out."""
    phrases: dict[str, list[str]] = {}
    for label, names in classes.items():
        if names:
            phrases[label] = [f"is labeled {' and '.join(names)}"]
    for result in results.values():
        part = result.lens.part("card")
        if part is not None:
            for label, phrase in part.phrases(result).items():
                phrases.setdefault(str(label), []).append(phrase)
    return {label: f"{label} {_joined(own)}." for label, own in phrases.items()}


def _joined(phrases: Sequence[str]) -> str:
    first, *rest = phrases
    return "; ".join([first, *(f"it {phrase}" for phrase in rest)])


def pair_texts(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """What lenses say of single pairs, besides the one whose pairs the page is about: by pair, lines of text.

    `rest` is what is said of a pair that has no line.
    """
    main, found = pairs_result(results), []
    for result in results.values():
        metrics = result.lens.schema.metrics
        rows = _pair_rows(result, metrics[0]) if result is not main and metrics else None
        if rows is None:
            continue
        rest, q = "", f"{metrics[0]}_q"
        if len(rows) > MOST_ROWS:
            if q not in rows:
                continue
            told = rows[rows[q] < SIGNIFICANT].sort_values(q, kind="stable")
            limit = told[q].iloc[MOST_ROWS] if len(told) > MOST_ROWS else SIGNIFICANT
            rows, rest = told.head(MOST_ROWS), f"None with q < {limit:.2g}."
        of: dict[str, list[str]] = {}
        for row in rows.to_dict("records"):
            of.setdefault(f"{row['src']}-{row['dst']}-{row['pairing']}", []).append(_line(row, metrics[0]))
        found.append({"title": result.lens.title, "of": of, "rest": rest})
    return found


def _pair_rows(result: Result, metric: str) -> pd.DataFrame | None:
    """A row for every pair: out of the grids of a result that has them, or else out of its first table."""
    grids = [result.dataset(pairing).assign_attrs(pairing=pairing) for pairing in COMPOSING if pairing in result]
    grids = [one for one in grids if metric in one and set(one[metric].dims) == {"src", "dst"}]
    if grids:
        return pd.concat([_grid_rows(one, metric) for one in grids], ignore_index=True)
    tables = result.lens.schema.tables
    rows = result.table() if tables and tables[0].name in result.tables else None
    return rows if rows is not None and {"src", "dst", "pairing"} <= set(rows.columns) else None


def _grid_rows(grid: xr.Dataset, metric: str) -> pd.DataFrame:
    first = grid.isel(null=0) if "null" in grid.dims else grid
    names = [name for name in (metric, f"{metric}_null", f"{metric}_q") if name in first]
    rows = first[names].to_dataframe().reset_index()[["src", "dst", *names]].dropna(subset=[metric])
    return rows.assign(pairing=grid.attrs["pairing"])


def _line(row: Mapping[Any, Any], metric: str) -> str:
    beside = [f"expected {row[f'{metric}_null']:.3g}"] if f"{metric}_null" in row else []
    beside += [significance("q", row[f"{metric}_q"])] if f"{metric}_q" in row else []
    told = f"{metric.replace('_', ' ')} {row[metric]:.3g}"
    return f"{told} ({', '.join(beside)})" if beside else told
