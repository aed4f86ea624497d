"""headspan: the geometry of transformer weights.

>>> import headspan
>>> heads = headspan.open("demo").heads()
>>> heads.W_Q.shape
torch.Size([2, 8, 128, 16])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headspan._version import __version__
from headspan.errors import HeadspanError

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint
    from headspan.checkpoint import open_checkpoint as open
    from headspan.checkpoint.families import Layout
    from headspan.checkpoint.families import register as register_family
    from headspan.checkpoint.synthetic import synthetic
    from headspan.explorer.showing import describe, show
    from headspan.heads import Heads

__all__ = [
    "Checkpoint",
    "Heads",
    "HeadspanError",
    "Layout",
    "__version__",
    "describe",
    "open",
    "register_family",
    "show",
    "synthetic",
]

_LAZY = {
    "open": ("headspan.checkpoint", "open_checkpoint"),
    "Checkpoint": ("headspan.checkpoint", "Checkpoint"),
    "Layout": ("headspan.checkpoint.families", "Layout"),
    "register_family": ("headspan.checkpoint.families", "register"),
    "synthetic": ("headspan.checkpoint.synthetic", "synthetic"),
    "Heads": ("headspan.heads", "Heads"),
    "show": ("headspan.explorer.showing", "show"),
    "describe": ("headspan.explorer.showing", "describe"),
}


def __getattr__(name: str) -> Any:
    """Load the heavy parts (torch among them) only when they are used."""
    if name not in _LAZY:
        raise AttributeError(f"module 'headspan' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
