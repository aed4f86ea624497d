"""Two checkpoints of one shape, compared in every way that headspan has.

1. How far every head moved (`headspan.lenses.drift`), beside a random change of the same size.
2. Which edges of the wiring appeared and vanished (`rewiring`), with the same null for every edge's change.
3. The spectra of all matrices before and after (`spectra_change`).

The result is a tree: `drift`, `wiring` with one node per pairing, `spectra` with one node per kind of matrix. A part
that the model has nothing for is left out, and the root's attribute `<part>_left_out` says why.
"""

from __future__ import annotations

import xarray as xr

from headspan.errors import ShapeError
from headspan.heads import Heads
from headspan.lenses import drift
from headspan.lenses.affinity.lens import NULLS
from headspan.lenses.compare.rewiring import Edge, rewiring
from headspan.lenses.compare.spectra_change import spectra_change

PARTS = ("drift", "wiring", "spectra")


def compute(
    before: Heads,
    after: Heads,
    *,
    leading: int | None = None,
    tolerance: float | None = None,
    draws: int = 16,
    seed: int = 0,
    level: float = 0.05,
    null: str = "haar",
    memory: int | str = "4GB",
) -> xr.DataTree:
    """Everything that differs between two checkpoints.

    Parameters
    ----------
    before, after
        Two checkpoints of one family, stack, shape and fold state.
    leading, tolerance, draws, seed
        As for `drift.compute`; `draws` and `seed` also for the null of edges.
    level, null
        An edge is there if its q-value under this null (`haar` or `anticausal`) is below `level`.
    memory
        Budget for one block of layers.

    Returns
    -------
    DataTree
        `drift` as `drift.compute`; `wiring/<pairing>` as `rewiring.rewiring`; `spectra/<kind>` as
        `spectra_change.spectra_change`.
    """
    if not 0 < level < 1:
        raise ShapeError(f"level is a q-value between 0 and 1, found {level}")
    if null not in NULLS:
        raise ShapeError(f"null needs to be one of {', '.join(NULLS)}, found {null!r}")
    moved = drift.compute(before, after, leading=leading, tolerance=tolerance, draws=draws, seed=seed)
    nodes: dict[str, xr.Dataset] = {"drift": moved}
    attrs = {**moved.attrs, "lens": "compare", "level": level, "edge_null": null}
    if before.n_layers > 1:
        wiring, note = rewiring(before, after, moved, Edge(level, null), tolerance, memory)
        nodes |= {f"wiring/{pairing}": node for pairing, node in wiring.items()}
        attrs["change_null"] = note
    else:
        attrs["wiring_left_out"] = "nothing composes: there is one layer"
    spectra, left_out = spectra_change(before, after, seed, memory)
    nodes |= {f"spectra/{kind}": node for kind, node in spectra.items()}
    if left_out:
        attrs["spectra_left_out"] = left_out
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})
