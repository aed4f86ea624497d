"""What can be asked of heads: precision, device, layers and roles; anything else is refused with what there is."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from headspan.checkpoint import StoredStack
from headspan.dims import ROLES, Role
from headspan.errors import ShapeError

HALF = (torch.float16, torch.bfloat16)


def checked_dtype(dtype: torch.dtype | str | None, stored: torch.dtype) -> torch.dtype:
    """The precision to compute in: float32 or float64, by default that of the file, or float32 for half precision."""
    if dtype is None:
        return torch.float32 if stored in HALF else stored
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in (torch.float32, torch.float64):
        raise ShapeError(f"dtype {dtype!r} cannot be computed in; use float32 or float64")
    return found


def checked_device(device: torch.device | str) -> torch.device:
    """A device by its name."""
    try:
        return torch.device(device)
    except RuntimeError as problem:
        raise ShapeError(f"{device!r} is not a device; write it like cpu, cuda or cuda:1") from problem


def checked_layers(layers: Sequence[int] | range | None, stored: StoredStack) -> tuple[int, ...]:
    """Layers that have attention, each once; by default all of them."""
    if layers is None:
        return stored.attention_layers
    chosen, n_layers = tuple(layers), stored.stack.n_layers
    wrong = [layer for layer in chosen if not isinstance(layer, int) or not 0 <= layer < n_layers]
    if wrong or not chosen or len(set(chosen)) < len(chosen):
        problem = f"layer {wrong[0]!r}" if wrong else "an empty or repeating choice of layers"
        raise ShapeError(f"{problem} does not fit a model with layers 0..{n_layers - 1}")
    other = next((layer for layer in chosen if layer in stored.other_layers), None)
    if other is not None:
        raise ShapeError(f"layer {other} has no attention; those that have are {span_text(stored.attention_layers)}")
    return chosen


def checked_roles(roles: Sequence[str]) -> tuple[Role, ...]:
    """Roles in their usual order, each once."""
    unknown = [role for role in roles if role not in ROLES]
    if unknown or not roles:
        raise ShapeError(f"unknown role {unknown[0]!r}; roles are Q, K, V, O" if unknown else "no role was asked for")
    return tuple(role for role in ROLES if role in roles)


def span_text(layers: tuple[int, ...]) -> str:
    """Layers for reading: `0..11` where none is left out, a list otherwise."""
    return f"{layers[0]}..{layers[-1]}" if layers == tuple(range(layers[0], layers[-1] + 1)) else str(list(layers))
