"""What the scripts of a comparison's page know: how far each head moved, for the side panel, and the tables to save."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pandas as pd
import xarray as xr

from headspan.dims import ROLES
from headspan.explorer.head_grid import HeadGrid
from headspan.explorer.head_table import Fact, head_table
from headspan.explorer.pair_table import STRONGEST_PAIRS
from headspan.explorer.record import PageData, page_record
from headspan.explorer.store import Store
from headspan.explorer.tables import PageTable, table_record
from headspan.lenses.compare import edge_changes, spectra_table, table, wiring_pairings

NAMES = {"Q": "Query space moved", "K": "Key space moved", "V": "Value space moved", "O": "Write space moved"}
COLUMNS = {"grassmann": "moved", "grassmann_chance": "moved_chance", "p_value": "moved_p", "relative_change": "change"}


def compare_record(result: xr.DataTree, store: Store) -> dict[str, Any]:
    """The record of a page about two checkpoints; arrays are in the store."""
    drift = result["drift"].to_dataset()
    layers = [int(layer) for layer in drift["layer"].values]
    grid = HeadGrid(layers, int(result.attrs["n_heads"]), int(result.attrs["n_kv_heads"]))
    record = page_record(PageData(grid, {}, {}, _tables(result)), store)
    rows = _head_rows(head_table(grid, {}), table(result))
    record["tables"][0] = table_record(PageTable("heads", "Every head, one row each", rows), store)
    facts = [Fact(NAMES[role], f"moved_{role}", f"moved_chance_{role}", f"moved_p_{role}") for role in ROLES]
    facts += [Fact(f"Relative change of W_{role}", f"change_{role}") for role in ROLES]
    record["facts"] = [asdict(fact) for fact in facts]
    return record


def _head_rows(heads: pd.DataFrame, drift: pd.DataFrame) -> pd.DataFrame:
    """The heads of the page with the drift of each role beside them; NaN where a head has no such role of its own."""
    for role in ROLES:
        own = drift[drift["role"] == role].set_index("label")
        for column, name in COLUMNS.items():
            heads = heads.assign(**{f"{name}_{role}": heads["label"].map(own[column])})
    return heads


def _tables(result: xr.DataTree) -> list[PageTable]:
    found = [PageTable("drift", "How far every head moved, one row per role", table(result))]
    edges = [edge_changes(result, pairing) for pairing in wiring_pairings(result)]
    if edges and not int(result.attrs["identical"]):
        joined = pd.concat(edges, ignore_index=True)
        largest = joined.reindex(joined["change"].abs().sort_values(ascending=False, kind="stable").index)
        rows = largest[:STRONGEST_PAIRS].reset_index(drop=True)
        found.append(PageTable("edges", "Edges before and after, largest changes first", rows))
    return [*found, PageTable("spectra", "Spectra of every matrix before and after", spectra_table(result))]
