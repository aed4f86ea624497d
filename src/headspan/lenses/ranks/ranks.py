"""How many dimensions each head really reads and writes.

A head's matrix of role r has d_head directions at most; trained heads may use fewer, and a head that was pruned to zero
uses none. The rank is decided by an explicit tolerance, which is part of the result.
"""

from __future__ import annotations

import xarray as xr

from headspan.dims import LAYER, ROLES, head_axis
from headspan.heads import Heads
from headspan.subspaces import default_tolerance


def compute(heads: Heads, tolerance: float | None = None, memory: int | str = "4GB") -> xr.Dataset:
    """Numerical rank of every head and role.

    Parameters
    ----------
    heads
        Any heads.
    tolerance
        Singular values up to this share of a head's largest count as zero; by default d_model times machine epsilon.
    memory
        Budget for one block of layers.

    Returns
    -------
    Dataset with `rank_Q [layer, head]`, `rank_K [layer, kv_head]`, `rank_V [layer, kv_head]`, `rank_O [layer, head]`,
    whole numbers in [0, d_head]. Under chance (independent continuous random entries) every rank is d_head with
    probability one: `full_rank_Q` and its siblings, beside them.
    """
    used = default_tolerance(heads.d_model, heads.dtype) if tolerance is None else tolerance
    variables: dict[str, tuple[tuple[str, str], object] | int] = {}
    for role in ROLES:
        variables[f"rank_{role}"] = ((LAYER, head_axis(role)), heads.rank(role, used, memory).cpu().numpy())
        variables[f"full_rank_{role}"] = min(heads.shape(role)[2:])
    return xr.Dataset(
        variables,
        coords={LAYER: list(heads.layers)},
        attrs={**heads.provenance(), "lens": "ranks", "tolerance": used},
    )
