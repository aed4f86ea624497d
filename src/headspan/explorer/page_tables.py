"""Tables a page carries: of heads, of pairs, and behind figures; columns in the store, saved as CSV by the browser.

A column is an array, or, where it repeats itself (labels, layers, an expected value), a list of its values and for each
row the place in that list. Nothing is rounded: a number in the saved file is the number of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import xarray as xr

from headspan.dims import COMPOSING
from headspan.explorer.figure_block import figure_id
from headspan.explorer.html import Markup, element, folded
from headspan.explorer.store import Store
from headspan.frames import axis_columns, nodes_of, spread
from headspan.result import Result

MOST_ROWS = 20_000
"""Of a table behind a figure: a longer one would be a fifth of the page, and its lens writes it with `-o`."""
UNDER_NULL = ("null", "p", "q")
"""What a page keeps of every null; the rest is that of the first."""


@dataclass(frozen=True)
class PageTable:
    """A table by the name of the file it is saved as, what it holds, and its rows."""

    name: str
    title: str
    rows: pd.DataFrame


def table_record(table: PageTable, store: Store) -> dict[str, Any]:
    """What the page's scripts need to read a table."""
    columns = [{"name": str(name), **_column(table.rows[name], store)} for name in table.rows.columns]
    return {"name": table.name, "title": table.title, "length": len(table.rows), "columns": columns}


def _column(values: pd.Series, store: Store) -> dict[str, Any]:
    if pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype):
        return _numbers(_plain(values), store)
    texts = values.astype(object).where(values.notna(), None)
    codes, names = pd.factorize(texts, use_na_sentinel=False)
    listed = [None if name is None or name != name else str(name) for name in names]
    return {"codes": store.array(codes), "values": store.value(listed)}


def _plain(values: pd.Series) -> np.ndarray:
    """The numbers as NumPy has them; a whole number that may be absent becomes a float, NaN where it is."""
    plain = isinstance(values.dtype, np.dtype)
    numbers: np.ndarray = values.to_numpy() if plain else values.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def _numbers(values: np.ndarray, store: Store) -> dict[str, Any]:
    listed, codes = np.unique(values, return_inverse=True)
    width = 1 if len(listed) <= 256 else 2 if len(listed) <= 65536 else 4
    if listed.nbytes + width * len(values) < values.nbytes:
        return {"codes": store.array(codes), "values": store.array(listed)}
    return {"array": store.array(values)}


def pairs_result(results: Mapping[str, Result]) -> Result | None:
    """The result whose pairs of heads the page is about, if there is one with pairs that compose."""
    for result in results.values():
        first = next(iter(result.lens.schema.tables), None)
        if first is not None and (first.name, first.key) == ("pairs", "pairing"):
            return result if any(name in result for name in COMPOSING) else None
    return None


def pair_table(result: Result, most: int | None = None) -> pd.DataFrame:
    """Every pair of OQ, OK and OV with its scores, and their expected value, p and q under every null.

    Parameters
    ----------
    result
        Of a lens that scores pairs.
    most
        Of how many pairs at most: equally many of each pairing, the strongest by any score or z-score.
    """
    nulls = nulls_of(result)
    rows = result.table()
    for null in nulls:
        other = result.table(null=null)
        for metric in result.lens.schema.metrics:
            for part in UNDER_NULL:
                if f"{metric}_{part}" in other:
                    rows[f"{metric}_{part}_{null}"] = other[f"{metric}_{part}"]
    dropped = [f"{metric}_{part}" for metric in result.lens.schema.metrics for part in UNDER_NULL] if nulls else []
    rows = rows[rows["pairing"].isin(COMPOSING)].drop(columns=dropped, errors="ignore")
    rows = _with_tiers(rows, result).reset_index(drop=True)
    if most is None:
        return rows
    each = most // max(rows["pairing"].nunique(), 1)
    ranked = [name for metric in result.lens.schema.metrics for name in (metric, f"{metric}_z") if name in rows]
    best = rows.groupby("pairing")[ranked].rank(ascending=False, method="first").min(axis=1)
    chosen = best.groupby(rows["pairing"]).rank(method="first") <= each
    return rows[chosen].reset_index(drop=True)


def _with_tiers(rows: pd.DataFrame, result: Result) -> pd.DataFrame:
    """Each score's tier (strong, stands out, background) as a column, where the lens tells tiers."""
    part = result.lens.part("wiring")
    if part is None:
        return rows
    for metric in result.lens.schema.metrics:
        if metric in rows:
            known = {
                f"q_{null}": rows[f"{metric}_q_{null}"] for null in nulls_of(result) if f"{metric}_q_{null}" in rows
            }
            if f"{metric}_mirror_fdr" in rows:
                known["mirror_fdr"] = rows[f"{metric}_mirror_fdr"]
            rows = rows.assign(**{f"{metric}_tier": part.tiers(pd.DataFrame(known, index=rows.index))})
    return rows


def tier_counts(pairs: pd.DataFrame, metric: str) -> dict[str, dict[str, int]]:
    """Pairing to tier to number of pairs; empty where a score has no tiers."""
    if f"{metric}_tier" not in pairs:
        return {}
    counts = pairs.groupby(["pairing", f"{metric}_tier"]).size()
    found: dict[str, dict[str, int]] = {}
    for (pairing, tier), count in counts.items():
        found.setdefault(str(pairing), {})[str(tier)] = int(count)
    return found


def nulls_of(result: Result) -> list[str]:
    """The nulls of a result with several, the one shown first."""
    nodes = nodes_of(result.data).values()
    return next(([str(name) for name in node["null"].values] for node in nodes if "null" in node.dims), [])


def figure_tables(
    results: Mapping[str, Result], figures: Mapping[str, Mapping[str, go.Figure]]
) -> tuple[list[PageTable], dict[str, dict[str, str]]]:
    """The tables behind figures, and by lens and figure the name of its table.

    A lens's `figures.py` says in `BEHIND` which variables a figure shows (those derived from them are added), or the
    name of one of the page's own tables ("heads", "pairs"). Any other figure, and one whose table would be longer than
    MOST_ROWS, is saved as what it draws; the browser makes that table out of the figure.
    """
    tables: list[PageTable] = []
    behind: dict[str, dict[str, str]] = {}
    for lens, drawn in figures.items():
        shown = getattr(results[lens].lens.part("figures"), "BEHIND", {})
        for name in drawn:
            names = shown.get(name)
            if isinstance(names, str):
                behind.setdefault(lens, {})[name] = names
            elif names and (rows := _rows(results[lens], names)) is not None and len(rows) <= MOST_ROWS:
                tables.append(PageTable(figure_id(lens, name), name, rows))
                behind.setdefault(lens, {})[name] = tables[-1].name
    return tables, behind


def _rows(result: Result, names: tuple[str, ...]) -> pd.DataFrame | None:
    """Variables of one node (`node/variable`, or of the root), each with those derived from it, cell by cell.

    None where none of them is there.
    """
    node, _, first = names[0].rpartition("/")
    if node and node not in result:
        return None
    dataset, declared = result.dataset(node), result.lens.schema.declared(node)
    families = [one.name for name in (first, *names[1:]) for one in declared[name].family()]
    known = [name for name in dict.fromkeys(families) if name in dataset]
    return grid_rows(dataset, known) if known else None


def grid_rows(dataset: xr.Dataset, names: list[str]) -> pd.DataFrame:
    """Variables over all the axes that any of them has; one with fewer axes repeats, one by layer at its heads."""
    shown = {name: dataset[name] for name in names}
    heads = next((axis for axis in ("head", "kv_head") if any(axis in one.dims for one in shown.values())), None)
    if heads is not None:
        layers = xr.Variable(heads, dataset[f"{heads}_layer"].values)
        shown = {name: one.sel(layer=layers) if "layer" in one.dims else one for name, one in shown.items()}
    sizes = {axis: one.sizes[axis] for one in shown.values() for axis in one.dims}
    columns = axis_columns(dataset, sizes)
    return pd.DataFrame(columns | {name: spread(one.variable, sizes) for name, one in shown.items()})


def downloads_section(tables: Sequence[Mapping[str, Any]], command: str = "", identifier: str = "downloads") -> Markup:
    """Every table of the page with a button that makes the file in the browser, and the command that writes the rest.

    Parameters
    ----------
    tables
        As the payload has them.
    command
        What writes all pairs, where the page holds the strongest alone.
    identifier
        What links point to.
    """
    head = element("tr", *(element("th", name, scope="col") for name in ("Table", "Rows", "Columns", "")))
    rows = [_download_row(table) for table in tables]
    listed = element("div", element("table", element("thead", head), element("tbody", *rows)), class_="scroll")
    about = "The numbers behind the figures, as CSV. Files are made by this page out of the data it carries."
    words = "This model has too many pairs of heads for one page. All of them, with every p-value, are written by "
    rest = [element("p", words, element("code", command), ".", class_="note")] if command else []
    summary = f"Downloads: {len(tables)} tables"
    return folded(summary, element("p", about, class_="lead"), listed, *rest, id_=identifier, class_="chapter")


def pairs_command(lens: str, model: str) -> str:
    """The command that writes all pairs of a model."""
    return f"headspan {lens} {quote(model)} -o pairs.nc"


def _download_row(table: Mapping[str, Any]) -> Markup:
    button = element("button", f"{table['name']}.csv", type_="button", data_csv=table["name"])
    names = ", ".join(column["name"] for column in table["columns"])
    return element(
        "tr",
        element("td", table["title"], element("div", names, class_="evidence columns-list")),
        element("td", f"{table['length']:,}", class_="number"),
        element("td", str(len(table["columns"])), class_="number"),
        element("td", button),
    )
