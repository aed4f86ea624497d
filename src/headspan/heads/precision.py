"""Which precision a lens computes in unless it is told: double up to a width or an amount of work, single above it.

Double precision costs twice the time and memory of single. Above FLOAT64_WIDTH that is the difference between a laptop
doing it or not, while kernels and angles lose nothing that matters: a lens that switches measures its error on a sample
against double precision and records it. Singular values through Gram matrices need the digits and stay in double.

Products of all pairs of heads are the bulk of some lenses' work. From FLOAT64_OPERATIONS on they are formed in single
precision at any width (`pair_dtype`, docs/decisions/0078): what rounding changes is six digits behind what the null
leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from headspan.dims import Role
from headspan.heads.heads import Heads
from headspan.subspaces import Subspace, concatenate, default_tolerance, orthonormal_basis

FLOAT64_WIDTH = 2048
"""Up to this d_model everything is computed in float64 unless told otherwise."""
FLOAT64_OPERATIONS = 1e11
"""Of all pairs of heads together: some seconds of one core in float64."""
SAMPLED_LAYERS = 3


def computing_dtype(heads: Heads) -> torch.dtype:
    """float64 up to FLOAT64_WIDTH, float32 above."""
    return torch.float64 if heads.d_model <= FLOAT64_WIDTH else torch.float32


def pair_dtype(heads: Heads, operations: float) -> torch.dtype:
    """What so many operations on pairs of heads are done in: as `computing_dtype`, float32 where they are many."""
    return torch.float32 if operations > FLOAT64_OPERATIONS else computing_dtype(heads)


def sampled_places(heads: Heads, role: Role) -> list[tuple[int, int]]:
    """Layers (by place) and heads on which rounding is measured: first, middle and last layer, first and last head."""
    layers = sorted({round(place) for place in torch.linspace(0, heads.n_layers - 1, SAMPLED_LAYERS).tolist()})
    return [(layer, head) for layer in layers for head in sorted({0, heads.shape(role)[1] - 1})]


def double_bases(heads: Heads, role: Role, places: Sequence[tuple[int, int]], tolerance: float | None) -> Subspace:
    """Bases of single heads in double precision, with the dimensions that the working precision decides on."""
    found, blocks = [], {}
    share = default_tolerance(heads.d_model, heads.dtype) if tolerance is None else tolerance
    for layer, head in places:
        if layer not in blocks:
            block = heads.layer(heads.layers[layer], (role,))
            blocks = {layer: (block.weight(role)[0], block.noise(role)[0])}
        W, noise = (each[head].double() for each in blocks[layer])
        found.append(
            orthonormal_basis((W.mT if role == "O" else W)[None], share, noise=noise if tolerance is None else 0.0)
        )
    return concatenate(found)
