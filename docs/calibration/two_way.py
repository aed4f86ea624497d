"""False positives of affinity's three nulls on unrelated heads: isotropic, anisotropic, by layer, with depth, and hubs.

Every head is drawn by itself, so that no two are related: W = G C^(1/2) with G standard normal. What differs is C, the
covariance of the directions that a head uses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from docs.calibration.rows import Row, rows
from headspan.statistics import reverse_order_p_values, two_way
from headspan.subspaces.nulls import upper_tail

COVERS = {
    "affinity": ("projection_kernel_p", "composition_score_p"),
    "channels": ("projection_kernel_p", "composition_score_p"),
    "compare": ("kernel_before_q", "kernel_after_q"),
}
"""p-values by lens that this topic is about; scores of one pair and edges of two checkpoints are those of affinity."""
LAYERS, HEADS, D_MODEL, D_HEAD = 8, 8, 128, 16
PLACES = np.repeat(np.arange(LAYERS), HEADS)
FORWARD = PLACES[:, None] < PLACES
Scales = Callable[[torch.Generator], torch.Tensor]


def kernels(left: torch.Tensor, right: torch.Tensor, generator: torch.Generator) -> np.ndarray:
    """Projection kernels of independent heads whose directions have these scales, [head, d_model]."""
    bases = []
    for scale in (left, right):
        drawn = torch.randn(len(scale), D_MODEL, D_HEAD, generator=generator, dtype=torch.float64)
        bases.append(torch.linalg.qr(drawn * scale[:, :, None])[0])
    flat = [basis.mT.reshape(-1, D_MODEL) for basis in bases]
    table = (flat[0] @ flat[1].T).square().reshape(len(left), D_HEAD, len(right), D_HEAD).sum((1, 3))
    return table.numpy()


def _decay(power: float) -> torch.Tensor:
    return torch.arange(1, D_MODEL + 1, dtype=torch.float64) ** -power


def isotropic(_: torch.Generator) -> torch.Tensor:
    return torch.ones(LAYERS * HEADS, D_MODEL, dtype=torch.float64)


def decaying(_: torch.Generator) -> torch.Tensor:
    """One decaying spectrum of the directions that all heads use."""
    return _decay(0.5).expand(LAYERS * HEADS, -1)


def by_layer(generator: torch.Generator) -> torch.Tensor:
    """A covariance of its own for every layer."""
    order = torch.stack([torch.randperm(D_MODEL, generator=generator) for _ in range(LAYERS)])
    return (_decay(0.5) + 0.3)[order].repeat_interleave(HEADS, 0)


def with_depth(_: torch.Generator) -> torch.Tensor:
    """Anisotropy that grows from the first layer to the last."""
    return torch.stack([_decay(0.7 * layer / (LAYERS - 1)) for layer in range(LAYERS)]).repeat_interleave(HEADS, 0)


def against_depth(generator: torch.Generator) -> torch.Tensor:
    """The same from the last layer to the first."""
    return with_depth(generator).flip(0)


def hubs(generator: torch.Generator) -> torch.Tensor:
    """Every eighth head uses the leading directions far more than the others: still unrelated, but not additive."""
    scale = isotropic(generator).clone()
    scale[::HEADS, :24] *= 3
    return scale


NULLS: dict[str, tuple[Scales, Scales]] = {
    "own null": (isotropic, isotropic),
    "decaying spectra": (decaying, decaying),
    "anisotropic, by layer": (by_layer, by_layer),
    "anisotropy grows with depth": (with_depth, with_depth),
    "anisotropy falls with depth in sources, grows in destinations": (against_depth, with_depth),
    "strong hubs": (hubs, hubs),
}


def rates(seed: int, draws: int) -> list[Row]:
    """How often unrelated pairs have p at or below each level. Pairs of a model share heads: intervals are narrow."""
    found: list[Row] = []
    for name, (src, dst) in NULLS.items():
        generator = torch.Generator().manual_seed(seed)
        p_values: dict[str, list[np.ndarray]] = {"two-way": [], "reverse": [], "haar": []}
        for _ in range(draws):
            table = kernels(src(generator), dst(generator), generator)
            fit = two_way(table, PLACES, PLACES)
            p_values["two-way"].append(fit.p[~np.isnan(fit.p)])
            grid = table.reshape(LAYERS, HEADS, LAYERS, HEADS)
            reverse = reverse_order_p_values(grid, np.arange(LAYERS))
            p_values["reverse"].append(reverse[~np.isnan(reverse)])
            haar = upper_tail(torch.from_numpy(table[FORWARD]), D_HEAD, D_HEAD, D_MODEL)
            p_values["haar"].append(haar.numpy())
        for null, parts in p_values.items():
            found += rows(f"affinity, {null} null", name, np.concatenate(parts))
    return found
