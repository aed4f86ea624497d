"""p-values of changes between two checkpoints (drift, compare) and of traces (spectra), on random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import headspan
from docs.calibration.rows import Row, rows

LAYERS, HEADS, D = 3, 4, 48
CHANGE = 0.3
Matrix = Callable[[torch.Generator], Tensor]
PARTS = {"drift grassmann": "grassmann_p", "drift outside_share": "outside_share_p"}


def normal(generator: torch.Generator) -> Tensor:
    return torch.randn(D, D, generator=generator, dtype=torch.float64)


def anisotropic(generator: torch.Generator) -> Tensor:
    """Some axes of the stream are used three times as much as others."""
    return normal(generator) * torch.linspace(0.5, 1.5, D, dtype=torch.float64)[:, None]


def decaying(generator: torch.Generator) -> Tensor:
    U, _, Vh = torch.linalg.svd(normal(generator))
    return D**0.5 * U * torch.arange(1, D + 1, dtype=torch.float64) ** -0.5 @ Vh


NULLS: dict[str, Matrix] = {"own null": normal, "anisotropic": anisotropic, "decaying spectra": decaying}


def weights(matrix: Matrix, generator: torch.Generator) -> dict[str, Tensor]:
    """Attention of a GPT-2: directions of the stream are rows of what reads it and columns of what writes it."""
    state = {"wte.weight": torch.zeros(8, D, dtype=torch.float64), "wpe.weight": torch.zeros(8, D, dtype=torch.float64)}
    for layer in range(LAYERS):
        read = [matrix(generator) for _ in range(3)]
        state[f"h.{layer}.attn.c_attn.weight"] = torch.cat(read, dim=1)
        state[f"h.{layer}.attn.c_proj.weight"] = matrix(generator).T.contiguous()
        for name, width in (("attn.c_attn.bias", 3 * D), ("attn.c_proj.bias", D)):
            state[f"h.{layer}.{name}"] = torch.zeros(width, dtype=torch.float64)
    return state


def _changed(state: dict[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
    """Every matrix with a normal change of a size in proportion to its own."""
    return {
        name: one
        if one.ndim < 2
        else one + CHANGE * one.std() * torch.randn(one.shape, generator=generator, dtype=one.dtype)
        for name, one in state.items()
    }


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` pairs of checkpoints. Heads and pairs of one model are not independent."""
    config: dict[str, Any] = {"model_type": "gpt2", "n_embd": D, "n_head": HEADS, "n_layer": LAYERS}
    config |= {"vocab_size": 8, "n_positions": 8}
    found: list[Row] = []
    for null, matrix in NULLS.items():
        generator, p = torch.Generator().manual_seed(seed), dict[str, list[np.ndarray]]()
        for draw in range(draws):
            before = weights(matrix, generator)
            pair = (before, config), (_changed(before, generator), config)
            result = headspan.compare(*pair, draws=16, seed=draw, progress=False)
            for name, variable in PARTS.items():
                parts = [result[f"drift/{role}"][variable].values.ravel() for role in "QKVO"]
                p.setdefault(name, []).append(np.concatenate(parts))
            changes = [result[f"wiring/{pairing}"]["change_p"].values.ravel() for pairing in ("OQ", "OK", "OV")]
            p.setdefault("compare change of a kernel", []).append(np.concatenate(changes))
            traces = headspan.spectra((before, config), progress=False)["alignment"]["trace_p"]
            for of in traces["null"].values:
                p.setdefault(f"spectra trace, {of}", []).append(traces.sel(null=of).values.ravel())
        for test, parts in p.items():
            values = np.concatenate(parts)
            found += rows(test, null, values[~np.isnan(values)])
    return found
