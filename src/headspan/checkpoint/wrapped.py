"""Models in memory that another tool has wrapped: TransformerLens' bridge and `HookedTransformer`, nnsight's models.

A bridge keeps the module of `transformers` inside, with its submodules replaced by its own: their names are put back.
Once its compatibility mode has processed the weights, the module inside is no longer what it computes with, and the
weights are read from its properties (`W_Q` and the others) in TransformerLens' own layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch

HEAD_WEIGHTS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")
MLP_WEIGHTS = ("W_in", "b_in", "W_gate", "W_out", "b_out")
INSERTED = "._original_component"
"""What a bridge puts into the names of a module's tensors."""


def unwrapped(source: Any) -> tuple[Mapping[str, torch.Tensor], Any] | None:
    """State dict and config of a wrapped model; None for anything else."""
    home = type(source).__module__.partition(".")[0]
    if home == "nnsight":
        return _plain(getattr(source, "_module", None), "nnsight")
    if hasattr(source, "cfg") and hasattr(source, "original_model"):
        return _processed(source) if getattr(source, "compatibility_mode", False) else _bridged(source.original_model)
    if hasattr(source, "cfg") and hasattr(source, "state_dict") and hasattr(source, "W_Q"):
        return source.state_dict(), source.cfg
    return None


def _plain(module: Any, tool: str) -> tuple[Mapping[str, torch.Tensor], Any]:
    if not (hasattr(module, "state_dict") and hasattr(module, "config")):
        raise CheckpointError(f"this {tool} model holds no transformers model; give that model itself")
    return module.state_dict(), module.config


def _bridged(module: Any) -> tuple[Mapping[str, torch.Tensor], Any]:
    """The module inside a bridge under the names that `transformers` gives its tensors."""
    import torch

    stored, config = _plain(module, "TransformerLens")
    with torch.device("meta"):
        names = set(type(module)(config).state_dict())
    found: dict[str, torch.Tensor] = {}
    for name, tensor in stored.items():
        own = name.replace(INSERTED, "").removeprefix(INSERTED[1:] + ".")
        if own in names:
            found.setdefault(own, tensor)
    return found, config


def _processed(bridge: Any) -> tuple[Mapping[str, torch.Tensor], Any]:
    """The weights that a bridge computes with after its compatibility mode, in TransformerLens' layout."""
    tensors: dict[str, torch.Tensor] = {}
    for kind, names in (("attn", HEAD_WEIGHTS), ("mlp", MLP_WEIGHTS)):
        for name in names:
            stacked = _property(bridge, name)
            for layer in range(0 if stacked is None else len(stacked)):
                tensors[f"blocks.{layer}.{kind}.{name}"] = stacked[layer]
    outside = {"embed.W_E": "W_E", "pos_embed.W_pos": "W_pos", "unembed.W_U": "W_U", "unembed.b_U": "b_U"}
    for name, attribute in outside.items():
        table = _property(bridge, attribute)
        if table is not None:
            tensors[name] = table
    norms = {
        f"blocks.{layer}.{name}": _property(block, name)
        for layer, block in enumerate(bridge.blocks)
        for name in ("ln1", "ln2")
    }
    for name, norm in {**norms, "ln_final": _property(bridge, "ln_final")}.items():
        for short, attribute in (("w", "weight"), ("b", "bias")):
            value = _property(norm, attribute)
            if value is not None:
                tensors[f"{name}.{short}"] = value
    return tensors, bridge.cfg


def _property(owner: Any, name: str) -> Any:
    """A property that a model may not have."""
    try:
        return getattr(owner, name, None)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # as TransformerLens says that there is none
        return None
