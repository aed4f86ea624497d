"""Files of version 1: the drift in one dataset, and numbers 0 to 3 for absent, kept, gained and lost edges."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.lenses.catalog import lens

ABSENT, KEPT, GAINED, LOST = range(4)
NAMES = {
    "q_before": "kernel_before_q",
    "q_after": "kernel_after_q",
    "change_chance": "change_null",
    "change_sd": "change_null_sd",
    "p_value": "change_p",
    "q_value": "change_q",
}


def upgraded(dataset: xr.Dataset) -> xr.Dataset | dict[str, xr.Dataset]:
    """One node of version 1 under today's names; that of the drift becomes one per role."""
    if "grassmann_Q" in dataset:
        older = lens("drift").part("older")
        nodes: dict[str, xr.Dataset] = {} if older is None else older.upgraded(dataset)
        return nodes
    if "status" in dataset:
        return _wiring(dataset.rename(NAMES))
    return dataset.rename({str(name): str(name).replace("_chance", "_null") for name in dataset})


def _wiring(node: xr.Dataset) -> xr.Dataset:
    """Edges as two flags. Which level made them is in the attributes of the file alone: changes are counted at 0.05."""
    status, certain = node["status"], node["change_q"] < 0.05
    turned = status.isin([GAINED, LOST])
    counts = {
        name: int((status == place).sum()) for place, name in ((KEPT, "n_kept"), (GAINED, "n_gained"), (LOST, "n_lost"))
    }
    counts |= {"n_beyond_null": int((turned & certain).sum()), "n_changed": int(certain.sum())}
    edges = {"edge_before": status.isin([KEPT, LOST]), "edge_after": status.isin([KEPT, GAINED])}
    return (
        node.drop_vars("status").assign(edges).assign({name: ((), np.array(value)) for name, value in counts.items()})
    )
