"""Parts of a comparison: its drift as a result of its own, and its pairs of heads as rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headspan.lenses.catalog import lens
from headspan.result import Result

COMPOSITION = {"OQ": "Q-composition", "OK": "K-composition", "OV": "V-composition"}
STATUS = ("kept", "gained", "lost", "absent")


def drift_part(result: Result) -> Result:
    """The drift, as `headspan.drift` gives it."""
    tree = result.data.children["drift"].copy()
    tree.attrs = {**result.attrs, "lens": "drift"}
    return Result(lens("drift"), tree)


def wiring_pairings(result: Result) -> list[str]:
    """The pairings whose edges were compared; none for a model of one layer."""
    return list(result["wiring"].children) if "wiring" in result else []


def edge_changes(result: Result, pairing: str | None = None, status: str | None = None) -> pd.DataFrame:
    """The composing pairs of a pairing (or of all), largest change first, with their `status`.

    Parameters
    ----------
    pairing
        Such as "OK"; all together by default.
    status
        Only pairs that are `kept`, `gained`, `lost` or `absent` as edges; all by default.
    """
    rows = result.table("edges")
    if rows.empty:
        return rows
    before, after = rows["edge_before"].to_numpy(bool), rows["edge_after"].to_numpy(bool)
    rows = rows.assign(status=np.select([before & after, after, before], STATUS[:3], STATUS[3]))
    chosen = np.ones(len(rows), bool)
    for column, wanted in (("pairing", pairing), ("status", status)):
        if wanted is not None:
            chosen &= (rows[column] == wanted).to_numpy()
    return rows[chosen].reset_index(drop=True)
