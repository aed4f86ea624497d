"""p-values of channels gained and lost, for random changes of small models; every pair is taken as a channel."""

from __future__ import annotations

import numpy as np
import torch

import headspan
from docs.calibration.rows import Row, rows
from headspan.lenses.compare.channel_changes import gains_and_losses, tested

LAYERS, HEADS, D, CHANGES = 4, 4, 48, 16
COVERS = {"compare": ("gain_p", "loss_p")}
NULLS = {
    "own null": 0.05,
    "changes of 0.3 of the weights": 0.3,
    "changes as large as the weights": 1.0,
}
CONFIG = {"model_type": "gpt2", "n_embd": D, "n_head": HEADS, "n_layer": LAYERS, "vocab_size": 8, "n_positions": 8}


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` models with a random change each, of three sizes."""
    before_layers = np.arange(LAYERS)[:, None, None, None] < np.arange(LAYERS)[None, None, :, None]
    every = {"channel": np.broadcast_to(before_layers, (LAYERS, HEADS, LAYERS, HEADS))}
    found = []
    for null, size in NULLS.items():
        p: dict[str, list[np.ndarray]] = {"gain": [], "loss": []}
        for draw in range(draws):
            generator = torch.Generator().manual_seed(1000 * seed + draw)
            pair = [_model(generator)]
            pair.append(
                {name: W + (size * W.std() * _like(W, generator) if W.ndim == 2 else 0) for name, W in pair[0].items()}
            )
            heads = [headspan.open((tensors, CONFIG)).heads(dtype="float64") for tensors in pair]
            grids = {pairing: [every, every] for pairing in ("OQ", "OK", "OV")}
            for one in gains_and_losses(heads[0], heads[1], grids, "gaussian", CHANGES, draw).values():
                for what, values in p.items():
                    values.append(tested(one[what][0], one[what][1:], CHANGES)[-1])
        for what, values in p.items():
            found += rows(f"compare {what} of channels", null, np.concatenate(values))
    return found


def _model(generator: torch.Generator) -> dict[str, torch.Tensor]:
    shapes = {f"h.{layer}.attn.c_{name}": n for layer in range(LAYERS) for name, n in (("attn", 3 * D), ("proj", D))}
    weights = {f"{name}.weight": _like(torch.empty(D, n, dtype=torch.float64), generator) for name, n in shapes.items()}
    return weights | {f"{name}.bias": torch.zeros(n, dtype=torch.float64) for name, n in shapes.items()}


def _like(W: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(W.shape, generator=generator, dtype=torch.float64)
