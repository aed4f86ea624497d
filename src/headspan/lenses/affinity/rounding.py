"""What single precision costs: kernels of a few pairs against the same in double precision."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from headspan.heads import Heads
from headspan.heads.precision import double_bases, sampled_places
from headspan.lenses.affinity.pair_tables import KernelTables, roles_of
from headspan.subspaces import projection_kernel


def kernel_error(heads: Heads, found: KernelTables, tolerance: float | None) -> dict[str, float | int]:
    """Largest difference of a sampled kernel from its value in double precision, and how many pairs were sampled.

    Nothing in double precision itself. A head's first and last of the first, middle and last layer are sampled.
    """
    if heads.dtype == torch.float64 or not found.tables:
        return {}
    pairing, table = next(iter(found.tables.items()))
    places = {role: sampled_places(heads, role) for role in roles_of(pairing)}
    src, dst = roles_of(pairing)
    exact = projection_kernel(*(double_bases(heads, role, places[role], tolerance) for role in (src, dst)))
    rows, columns = (
        torch.tensor([layer * heads.shape(role)[1] + head for layer, head in places[role]], device=table.device)
        for role in (src, dst)
    )
    difference = (table[rows][:, columns].double() - exact).abs()
    known = difference[~difference.isnan()]
    return {"float32_error": float(known.max()) if known.numel() else np.nan, "float32_error_pairs": int(known.numel())}


def verified_error(
    heads: Heads, kernels: Mapping[str, Mapping[tuple[int, int], float]], tolerance: float | None
) -> dict[str, float | int]:
    """The same for single pairs: the strongest and the weakest that were computed, of each pairing."""
    if heads.dtype == torch.float64:
        return {}
    differences = []
    for pairing, known in kernels.items():
        ranked = sorted(known, key=lambda pair: known[pair])
        for pair in {ranked[0], ranked[-1]} if ranked else ():
            spaces = [
                double_bases(heads, role, [divmod(member, heads.shape(role)[1])], tolerance)
                for role, member in zip(roles_of(pairing), pair, strict=True)
            ]
            differences.append(abs(float(projection_kernel(*spaces)) - known[pair]))
    return {"float32_error": max(differences, default=np.nan), "float32_error_pairs": len(differences)}
