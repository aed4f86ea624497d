"""What lenses measure on a model that claims are about, computed once for all of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

    from headspan.checkpoint import Checkpoint

KEPT = 4
_results: list[tuple[str, Checkpoint, Any]] = []
"""The last few results: lens, checkpoint (which has no hash, so identity is compared), what was measured."""


def _once(lens: str, checkpoint: Checkpoint, compute: Callable[[], Any]) -> Any:
    for name, about, result in _results:
        if name == lens and about is checkpoint:
            return result
    _results.append((lens, checkpoint, compute()))
    del _results[:-KEPT]
    return _results[-1][2]


def affinity_of(checkpoint: Checkpoint) -> xr.DataTree:
    """Affinity of all sixteen pairings, weights as stored."""
    from headspan.lenses import affinity

    result: xr.DataTree = _once(
        "affinity", checkpoint, lambda: affinity.compute(checkpoint.heads(), pairings="all", draws=2)
    )
    return result


def positions_of(checkpoint: Checkpoint) -> xr.Dataset:
    """Positions and tokens, weights as stored, tables as stored."""
    from headspan.lenses import positions

    result: xr.Dataset = _once("positions", checkpoint, lambda: positions.compute(checkpoint.heads()))
    return result
