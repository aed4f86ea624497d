"""Tables a page carries: columns in the store, saved as CSV by the browser.

A column is an array, or, where it repeats itself (labels, layers, a chance value), a list of its values and for each
row the place in that list. Nothing is rounded: a number in the saved file is the number of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headspan.explorer.store import Store


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
