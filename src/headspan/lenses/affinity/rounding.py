"""What single precision costs: kernels of a few pairs against the same in double precision."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from headspan.dims import Role
from headspan.heads import Heads
from headspan.lenses.affinity.pair_tables import KernelTables, roles_of
from headspan.subspaces import Subspace, concatenate, default_tolerance, orthonormal_basis, projection_kernel

SAMPLED_LAYERS = 3
SAMPLED_HEADS = 2


def sampled_places(heads: Heads, role: Role) -> list[tuple[int, int]]:
    """Layers (by place) and heads that the sample takes: the first, middle and last layer, first and last head."""
    layers = np.unique(np.linspace(0, heads.n_layers - 1, SAMPLED_LAYERS).round().astype(int)).tolist()
    n = heads.shape(role)[1]
    return [(layer, head) for layer in layers for head in sorted({0, n - 1})[:SAMPLED_HEADS]]


def double_bases(heads: Heads, role: Role, places: list[tuple[int, int]], tolerance: float | None) -> Subspace:
    """Bases of single heads in double precision, with the dimensions that the working precision decides on."""
    found, blocks = [], {}
    share = default_tolerance(heads.d_model, heads.dtype) if tolerance is None else tolerance
    for layer, head in places:
        if layer not in blocks:
            blocks = {layer: heads.layer(heads.layers[layer], (role,)).weight(role)[0]}
        W = blocks[layer][head].double()
        found.append(orthonormal_basis((W.mT if role == "O" else W)[None], share))
    return concatenate(found)


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
