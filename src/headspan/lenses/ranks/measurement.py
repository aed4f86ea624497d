"""How many dimensions each head really reads and writes.

A head's matrix of role r has d_head directions at most; trained heads may use fewer, and a head that was pruned to zero
uses none. The rank is decided by an explicit tolerance, which is part of the result.
"""

from __future__ import annotations

import xarray as xr

from headspan.dims import LAYER, ROLES, head_axis
from headspan.heads import Heads
from headspan.subspaces import default_tolerance


def measure(heads: Heads, *, tolerance: float | None = None, memory: int | str = "4GB") -> xr.Dataset:
    """`headspan.ranks` on heads: `rank_Q [layer, head]`, `rank_K [layer, kv_head]`, ... and `full_rank_Q`, ..."""
    used = default_tolerance(heads.d_model, heads.dtype) if tolerance is None else tolerance
    variables: dict[str, tuple[tuple[str, str], object] | int] = {}
    for role in ROLES:
        variables[f"rank_{role}"] = ((LAYER, head_axis(role)), heads.rank(role, used, memory).cpu().numpy())
        variables[f"full_rank_{role}"] = min(heads.shape(role)[2:])
    return xr.Dataset(variables, coords={LAYER: list(heads.layers)}, attrs={"tolerance": used})
