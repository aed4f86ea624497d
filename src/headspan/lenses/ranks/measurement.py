"""How many dimensions each head really reads and writes.

A head's matrix of role r has d_head directions at most; trained heads may use fewer, and a head that was pruned to zero
uses none. The rank is decided by the precision that the weights were stored in, or by an explicit tolerance; the
result says by which.
"""

from __future__ import annotations

import xarray as xr

from headspan.dims import LAYER, ROLES, head_axis
from headspan.heads import Heads


def measure(heads: Heads, *, tolerance: float | None = None, memory: int | str = "4GB") -> xr.Dataset:
    """`headspan.ranks` on heads: `rank_Q [layer, head]`, `rank_K [layer, kv_head]`, ... and `full_rank_Q`, ..."""
    variables: dict[str, tuple[tuple[str, str], object] | int] = {}
    for role in ROLES:
        variables[f"rank_{role}"] = ((LAYER, head_axis(role)), heads.rank(role, tolerance, memory).cpu().numpy())
        variables[f"full_rank_{role}"] = min(heads.shape(role)[2:])
    return xr.Dataset(variables, coords={LAYER: list(heads.layers)}, attrs={"tolerance": heads.rank_rule(tolerance)})
