"""p-values of rounding (drift) and of where changes lie and what they turn (compare), on random weights.

Own null: noise in unequal steps for rounding, a Gaussian change for the others. Stress: weights really rounded, to the
nearest of levels in unequal steps, in a model that uses some axes of the stream more than others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import headspan
from docs.calibration.changes import HEADS, LAYERS, D, _changed, anisotropic, normal, weights
from docs.calibration.rows import Row, rows

GROUP, LEVELS = 8, 8
PARTS = ("grassmann", "outside_share", "growth")


def _steps(one: Tensor) -> Tensor:
    groups = one.reshape(-1, GROUP).abs().amax(1, keepdim=True) / LEVELS
    return groups.expand(-1, GROUP).reshape(one.shape)


def _noisy(one: Tensor, generator: torch.Generator) -> Tensor:
    return one + _steps(one) * (torch.rand(one.shape, generator=generator, dtype=one.dtype) - 0.5)


def _rounded(one: Tensor, generator: torch.Generator) -> Tensor:
    step = _steps(one).clamp(min=1e-12)
    return (one / step).round() * step


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` pairs of checkpoints. Heads and pairs of one model are not independent."""
    config: dict[str, Any] = {"model_type": "gpt2", "n_embd": D, "n_head": HEADS, "n_layer": LAYERS}
    config |= {"vocab_size": 8, "n_positions": 8}
    found: list[Row] = []
    for null, matrix, change in (("own null", normal, _noisy), ("rounded to 17 levels", anisotropic, _rounded)):
        generator, p = torch.Generator().manual_seed(seed), dict[str, list[np.ndarray]]()
        for draw in range(draws):
            before = weights(matrix, generator)
            after = {name: change(one, generator) if one.ndim == 2 else one for name, one in before.items()}
            result = headspan.drift((before, config), (after, config), noise="rounding", seed=draw, progress=False)
            for name in PARTS:
                parts = [result[role][f"{name}_p"].values.ravel() for role in "QKVO"]
                p.setdefault(f"drift {name}, rounding", []).append(np.concatenate(parts))
        for test, parts in p.items():
            found += rows(test, null, np.concatenate(parts))
    return found + _changes(seed, max(draws // 3, 5), config)


def _changes(seed: int, draws: int, config: dict[str, Any]) -> list[Row]:
    generator, p = torch.Generator().manual_seed(seed), dict[str, list[np.ndarray]]()
    for draw in range(draws):
        before = weights(normal, generator)
        pair = (before, config), (_changed(before, generator), config)
        result = headspan.compare(*pair, draws=16, seed=draw, similarity=1.0, progress=False)
        for name in ("read_share", "write_share"):
            parts = [result[f"wiring/{pairing}"][f"{name}_p"].values.ravel() for pairing in ("OQ", "OK", "OV")]
            values = np.concatenate(parts)
            p.setdefault(f"compare {name}", []).append(values[~np.isnan(values)])
        parts = [result[f"change/W_{role}"]["similarity_p"].values.ravel() for role in "QKVO"]
        p.setdefault("compare similarity", []).append(np.concatenate(parts))
    return [row for test, parts in p.items() for row in rows(test, "own null", np.concatenate(parts))]
