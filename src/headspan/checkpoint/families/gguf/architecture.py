"""What a GGUF architecture is: rules from its tensors to those of a family, and the family's names for its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headspan.checkpoint.config import Config
from headspan.checkpoint.families.gguf.undo import AsItIs, Undo
from headspan.checkpoint.families.parts import Shape

Maker = Callable[[Shape], Undo]


@dataclass(frozen=True)
class Rule:
    """GGUF modules (of a layer without `blk.3.`), and the module or tensor that they are in the family."""

    modules: tuple[str, ...]
    target: str
    undo: Maker = lambda shape: AsItIs()
    bare: bool = False
    """The family's tensors are called `target` and `target_bias`, not `target.weight` and `target.bias`."""
    per_head: bool = False
    """One GGUF tensor holds one of the family's for every row; `{head}` stands in the target."""


@dataclass(frozen=True)
class Facts:
    """What an architecture may depend on besides its name."""

    settings: Config
    """The metadata, without the architecture's name before it."""
    names: Collection[str]
    tables: Mapping[str, tuple[float, ...]]
    shape: Shape


def _as_it_is(architecture: Architecture, facts: Facts) -> Architecture:
    return architecture


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One architecture by GGUF's name. What is not given is as in Llama."""

    name: str
    model_type: str
    rules: tuple[Rule, ...]
    variant: Callable[[Architecture, Facts], Architecture] = _as_it_is
    """The record for the file at hand; refuses what no test proves."""
    rms: bool = True
    """The norms are RMSNorms, whose epsilon has another name in the metadata."""
    eps: str = "rms_norm_eps"
    layers: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    kv_heads: str | None = "num_key_value_heads"
    width: str = "hidden_size"
    mlp_width: str | None = "intermediate_size"
    head_width: str | None = "head_dim"
    context: str = "max_position_embeddings"
    """The family's fields for its sizes; None where it has none."""
    rotary: bool = True
    window_every: int | None = None
    """Every so many layers, the last attends to everything and the others through a sliding window."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Further fields of the config, each with the metadata that says it."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields that hold for every file."""
    ignored: tuple[str, ...] = ()
    """Modules beside the model: heads of classifiers and the like."""

    def with_fixed(self, **fields: Any) -> Architecture:
        return replace(self, fixed={**self.fixed, **fields})


def as_written(value: float) -> float:
    """A number that was stored in single precision, as it was most likely written: 1e-05, not 9.99999974e-06."""
    return float(f"{value:.6g}")


def plain(names: Mapping[str, str]) -> tuple[Rule, ...]:
    """Rules for modules that are only renamed."""
    return tuple(Rule((module,), target) for module, target in names.items())


def undone(rules: Sequence[Rule], undo: Mapping[str, Maker]) -> tuple[Rule, ...]:
    """`rules` with some changes to undo, by module."""
    return tuple(replace(rule, undo=undo.get(rule.modules[0], rule.undo)) for rule in rules)


def without(rules: Sequence[Rule], *modules: str) -> tuple[Rule, ...]:
    """`rules` but for those of some modules."""
    return tuple(rule for rule in rules if rule.modules[0] not in modules)
