"""Small models with tables made to have a known answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from transformers import PreTrainedModel

import headspan
from tests.families.tiny_models import CASES, COMMON, Case

D, VOCAB, CONTEXT = 48, 400, 96


def gpt2(change: Callable[[PreTrainedModel], None] | None = None, dtype: str = "float64", **settings) -> headspan.Heads:
    """A random GPT-2 in float64, changed in place before it is opened."""
    shape = {"n_embd": D, "n_head": 4, "n_layer": 2, "n_positions": CONTEXT, "vocab_size": VOCAB, **settings}
    model = Case("gpt2", "gpt2", {**COMMON, **shape}).model()
    if change is not None:
        with torch.no_grad():
            change(model)
    return headspan.open(model.to(getattr(torch, dtype))).heads()


def tiny(name: str, stack: str | None = None) -> headspan.Heads:
    return headspan.open(next(case for case in CASES if case.name == name).model()).heads(stack=stack)


def basis(seed: int = 0, d: int = D) -> np.ndarray:
    """A random orthonormal basis of R^d, directions as columns."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def made_of(directions: np.ndarray, values: np.ndarray, rows: int, seed: int = 0) -> torch.Tensor:
    """A table with these singular values and directions, its left singular vectors random and without a mean."""
    noise = np.random.default_rng(seed).standard_normal((rows, len(values)))
    left = np.linalg.qr(noise - noise.mean(0))[0]
    return torch.as_tensor(left * values @ directions.T)


def set_tables(P: torch.Tensor | None = None, E: torch.Tensor | None = None) -> Callable[[PreTrainedModel], None]:
    def change(model: PreTrainedModel) -> None:
        if P is not None:
            model.wpe.weight.copy_(P)
        if E is not None:
            model.wte.weight.copy_(E)

    return change
