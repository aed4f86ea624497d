"""False positives of the two-way null on unrelated heads: isotropic, anisotropic, by layer, with depth, and hubs.

Every head is drawn by itself, so that no two are related: W = G C^(1/2) with G standard normal. What differs is C, the
covariance of the directions that a head uses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from docs.calibration import Row, rates_of
from headspan.statistics import two_way

LAYERS, HEADS, D_MODEL, D_HEAD = 8, 8, 128, 16
PLACES = np.repeat(np.arange(LAYERS), HEADS)
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


def hubs(generator: torch.Generator) -> torch.Tensor:
    """Every eighth head uses the leading directions far more than the others: still unrelated, but not additive."""
    scale = isotropic(generator).clone()
    scale[::HEADS, :24] *= 3
    return scale


NULLS: dict[str, Scales] = {
    "own null": isotropic,
    "decaying spectra": decaying,
    "anisotropic, by layer": by_layer,
    "anisotropy grows with depth": with_depth,
    "strong hubs": hubs,
}


def rates(seed: int, draws: int) -> list[Row]:
    """How often unrelated pairs have p below each level; of about 3,600 pairs a draw."""
    rows: list[Row] = []
    for name, scales in NULLS.items():
        generator = torch.Generator().manual_seed(seed)
        found = []
        for _ in range(draws):
            table = kernels(scales(generator), scales(generator), generator)
            fit = two_way(table, PLACES, PLACES)
            found.append(fit)
        p = np.concatenate([each.p[~np.isnan(each.p)] for each in found])
        rows += rates_of("affinity, two-way", name, p)
        some = np.mean([(each.q < 0.05).any() for each in found])
        rows[-1]["any_q"] = float(some)
    return rows
