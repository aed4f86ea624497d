"""Edges from head to head: the pairs of affinity, as shares of what the destination reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import xarray as xr

from headspan.checkpoint.families.order import Part
from headspan.dims import KV_ROLES, Role
from headspan.heads import Heads
from headspan.lenses.affinity import affinity
from headspan.lenses.wiring.parts import axis
from headspan.lenses.wiring.relations import Edges
from headspan.lenses.wiring.schema import ROTATION
from headspan.result import Result

KERNEL, HAAR = "projection_kernel", "haar"


def head_edges(heads: Heads, roles: Sequence[Role], null: str, tolerance: float | None, memory: int) -> Iterator[Edges]:
    """Pairs of heads through each role that reads this stack's stream; none in a model of one layer."""
    if heads.stack.reads_memory:
        roles = [role for role in roles if role not in KV_ROLES]
    if heads.unrolled().n_layers < 2 or not roles:
        return
    found = affinity(
        heads,
        pairings=[f"O{role}" for role in roles],
        metrics=KERNEL,
        tolerance=tolerance,
        draws=1,
        memory=memory,
        dtype=str(heads.dtype).removeprefix("torch."),
        progress=False,
    )
    for role in roles:
        yield _pairs(heads.unrolled(), found, role, null)


def _pairs(heads: Heads, found: Result, role: Role, null: str) -> Edges:
    """One pairing: kernel over the destination's rank, so that 1 means all that it reads."""
    src, dst = axis(heads, "O"), axis(heads, cast("Part", role))
    node = _table(found, f"O{role}")
    ranks = [node[f"{side}_rank"].values.astype(np.float64) for side in ("src", "dst")]
    whole = np.where(ranks[1] > 0, ranks[1], np.nan)[None, :]
    known = [str(name) for name in node["null"].values]
    first = HAAR if null == ROTATION else known[0]
    nulls = {}
    for name in dict.fromkeys((first, HAAR)):
        said = {part: node[f"{KERNEL}_{part}"].sel(null=name).values for part in ("null", "null_sd", "z", "p", "q")}
        spread = 1.0 if name == "two-way" else whole
        said |= {"null": said["null"] / whole, "null_sd": said["null_sd"] / spread}
        nulls[ROTATION if name == HAAR else name] = said
    mirror = node[f"{KERNEL}_mirror_fdr"].values if first == "two-way" else None
    reason = "" if null == ROTATION else found.attrs.get("null_reason", "")
    share = np.minimum(node[KERNEL].values / whole, 1.0)
    return Edges(src, dst, share, nulls, (ranks[0], ranks[1]), mirror, reason)


def _table(found: Result, pairing: str) -> xr.Dataset:
    """A pairing over (src, dst); of a sketch only the verified pairs are known."""
    if "top" not in found[pairing].children:
        return found.dataset(pairing)
    pairs, heads = found.dataset(f"{pairing}/top"), found.dataset(f"{pairing}/heads")
    rows, columns = ([list(heads[side].values).index(label) for label in pairs[side].values] for side in ("src", "dst"))
    shape = (heads.sizes["src"], heads.sizes["dst"])
    table: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    for name in (KERNEL, *(f"{KERNEL}_{part}" for part in ("null", "null_sd", "z", "p", "q"))):
        values = pairs[name].values
        filled = np.full((*values.shape[:-1], *shape), np.nan)
        filled[..., rows, columns] = values
        table[name] = ((*map(str, pairs[name].dims[:-1]), "src", "dst"), filled)
    ranks = {f"{side}_rank": heads[f"{side}_rank"] for side in ("src", "dst")}
    return xr.Dataset({**table, **ranks}, coords={"null": pairs["null"].values})
