"""Models whose weights share nothing, for lenses to find nothing in: a GPT-2 of independent random matrices.

Own null: independent normal entries everywhere. Stress: coordinates of unequal variance, the same in tables and
matrices (anisotropic); tables and matrices whose singular values decay as 1/sqrt(i), turned at random (decaying
spectra).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

D, N_HEADS, N_POSITIONS, N_TOKENS, D_MLP = 64, 4, 48, 160, 96
Matrix = Callable[[int, int], Tensor]
"""A random matrix [rows, columns] whose columns are directions of the stream."""
Weights = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and a config."""


def normal(draw: torch.Generator) -> Matrix:
    """Independent normal entries."""
    return lambda n, d: torch.randn(n, d, generator=draw, dtype=torch.float64)


def anisotropic(draw: torch.Generator) -> Matrix:
    """Coordinates whose standard deviations differ by a factor of about two, alike in all tables and matrices."""
    scale = torch.exp(0.35 * torch.randn(D, generator=draw, dtype=torch.float64))
    return lambda n, d: torch.randn(n, d, generator=draw, dtype=torch.float64) * scale


def decaying(draw: torch.Generator) -> Matrix:
    """Singular values 1/sqrt(i), with uniformly random directions."""

    def matrix(n: int, d: int) -> Tensor:
        U, _, Vh = torch.linalg.svd(torch.randn(n, d, generator=draw, dtype=torch.float64), full_matrices=False)
        return U * torch.arange(1, min(n, d) + 1) ** -0.5 @ Vh

    return matrix


KINDS = {"own null": normal, "anisotropic": anisotropic, "decaying spectra": decaying}


def kinds(stress: bool) -> list[tuple[int, str, Callable[[torch.Generator], Matrix]]]:
    """Place, name and maker of every kind of model, or of the own null alone."""
    return [(place, *each) for place, each in enumerate(KINDS.items()) if stress or place == 0]


def generator_of(*seed: int) -> torch.Generator:
    """A generator of its own for every model that is drawn."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))


def gpt2(matrix: Matrix, layers: int = 1, n_heads: int = N_HEADS) -> Weights:
    """A GPT-2 all of whose matrices and tables are drawn by `matrix`, rows in the stream."""
    zeros, ones = torch.zeros, torch.ones
    tensors = {"wte.weight": matrix(N_TOKENS, D), "wpe.weight": matrix(N_POSITIONS, D)}
    for layer in range(layers):
        own = {
            # Directions of the stream are rows of what reads it and columns of what writes it.
            "attn.c_attn.weight": torch.cat([matrix(D, D).T for _ in range(3)], dim=1),
            "attn.c_attn.bias": zeros(3 * D),
            "attn.c_proj.weight": matrix(D, D),
            "attn.c_proj.bias": zeros(D),
            "mlp.c_fc.weight": matrix(D_MLP, D).T,
            "mlp.c_fc.bias": zeros(D_MLP),
            "mlp.c_proj.weight": matrix(D_MLP, D),
            "mlp.c_proj.bias": zeros(D),
        }
        tensors |= {f"h.{layer}.{name}": tensor for name, tensor in own.items()}
    for name in (*(f"h.{layer}.ln_{norm}" for layer in range(layers) for norm in (1, 2)), "ln_f"):
        tensors |= {f"{name}.weight": ones(D), f"{name}.bias": zeros(D)}
    config = {"model_type": "gpt2", "n_embd": D, "n_head": n_heads, "n_layer": layers, "n_inner": D_MLP}
    return tensors, config | {"vocab_size": N_TOKENS, "n_positions": N_POSITIONS}
