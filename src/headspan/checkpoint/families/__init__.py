"""Every supported family of models, by the `model_type` of its config, and all of them as a table.

To add one, write a `Layout` record (in `gpt_decoders`, `llama_decoders`, `encoders` or `several_stacks`); only a family
whose weights do not fit that table needs a `describe_...` function of its own. The table, which `headspan families` and
the documentation show, is not written by hand: each family is described for its default config and put in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headspan.checkpoint.config import Config, defaults
from headspan.checkpoint.families.description import Stack
from headspan.checkpoint.families.encoders import ENCODERS, VIT, VIT_IN_MEMORY, describe_albert
from headspan.checkpoint.families.gpt_decoders import GPT_DECODERS
from headspan.checkpoint.families.hooked import HOOKED, HOOKED_DEFAULTS
from headspan.checkpoint.families.layout import Layout, describe
from headspan.checkpoint.families.llama_decoders import LAB, LAB_DEFAULTS, LLAMA_DECODERS, describe_deepseek
from headspan.checkpoint.families.logits import Rotary
from headspan.checkpoint.families.parts import (
    MLP,
    HeadNorm,
    Latent,
    Linear,
    Norm,
    NormKind,
    Projection,
    Rows,
    Shape,
    Stored,
    Table,
)
from headspan.checkpoint.families.several_stacks import SEVERAL

Family = Callable[[Config], tuple[Stack, ...]]

FAMILIES: dict[str, Family] = {
    "albert": describe_albert,
    "deepseek_v2": describe_deepseek,
    "deepseek_v3": describe_deepseek,
}
OWN = {LAB.model_type: LAB_DEFAULTS, HOOKED.model_type: HOOKED_DEFAULTS}
"""Families that `transformers` does not know, with the config of a default model."""


GROUPED_FIELDS = {"multi_query": True, "new_decoder_architecture": True, "num_key_value_heads": 1, "num_kv_heads": 1}


def register(*layouts: Layout) -> None:
    """Make a family known: the layouts of all its stacks, which share one `model_type`.

    Several layouts of one stack are alternative spellings; the one that a checkpoint uses is found when it is opened.

    >>> import headspan
    >>> headspan.register_family(headspan.Layout(model_type="mine", output="self_attn.dense"))
    >>> describe_mine = FAMILIES.pop("mine")  # known until here
    """

    def described(config: Config) -> tuple[Stack, ...]:
        return tuple(describe(layout, config) for layout in layouts)

    FAMILIES[layouts[0].model_type] = described


def _register_all(families: Iterable[tuple[Layout, ...]]) -> None:
    for layouts in families:
        register(*layouts)


_register_all((layout,) for layout in (*GPT_DECODERS, *LLAMA_DECODERS, *ENCODERS))
_register_all((*SEVERAL, (VIT, VIT_IN_MEMORY), (LAB,), (HOOKED,)))


@dataclass(frozen=True)
class FamilyFacts:
    """One family as a row of text."""

    model_type: str
    stacks: str
    layout: str
    grouped: str
    norm: str
    positions: str
    besides: str


def catalog() -> Iterator[FamilyFacts]:
    """All families by name."""
    for model_type in sorted(FAMILIES):
        # Spellings of one stack differ in names only, so the first says everything.
        stacks = {stack.name: stack for stack in reversed(_described(model_type))}
        ordered = list(reversed(stacks.values()))
        yield FamilyFacts(
            model_type=model_type,
            stacks=", ".join(stack.name for stack in ordered),
            layout=_joined(_layout(stack) for stack in ordered),
            grouped="yes" if any(s.n_kv_heads < s.n_heads for s in _described(model_type, grouped=True)) else "no",
            norm=_joined(_norm(stack) for stack in ordered),
            positions=_joined(_positions(stack) for stack in ordered),
            besides=_joined(word for stack in ordered for word, _ in stack.peculiarities() if word),
        )


def default_fields(model_type: str) -> dict[str, Any]:
    """The config of a family's default model: that of `transformers`, or headspan's own."""
    return dict(OWN[model_type] if model_type in OWN else defaults().get(model_type, {}))


def _described(model_type: str, grouped: bool = False) -> tuple[Stack, ...]:
    fields = {**default_fields(model_type), **(GROUPED_FIELDS if grouped else {})}
    return FAMILIES[model_type](Config({**fields, "model_type": model_type}, model_type))


def _joined(words: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _layout(stack: Stack) -> str:
    query, key = stack.projections["Q"], stack.projections["K"]
    if key.latent is not None:
        return "latent"
    if query.linear != key.linear:
        return "separate"
    if query.rows.n_groups == 1:
        return "fused, side by side"
    if query.rows.per_group == 1 or query.rows.n_groups == stack.n_kv_heads:
        return "fused, head by head"
    return f"fused, {query.rows.n_groups} blocks"


def _norm(stack: Stack) -> str:
    if len(stack.norm.absent) == stack.n_layers:
        return "none"
    kind = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[stack.norm.kind]
    bare = "" if stack.norm.weight else ", bare,"
    both = " and after" if stack.write_norm is not None and stack.norm_place == "before" else ""
    return f"{kind}{bare} {stack.norm_place}{both}"


def _positions(stack: Stack) -> str:
    if not stack.rotary:
        return stack.positions
    first = stack.rotary[0]
    width = stack.apart["Q"].rows.d_head if stack.apart else stack.d_head
    part = "" if first.dims == width else f", {first.dims} of {width}"
    pairs = ", neighbors" if first.interleaved else ""
    speeds = ", by layer" if len(set(stack.rotary)) > 1 else ""
    return f"rotary{part}{pairs}{speeds}"


__all__ = [
    "FAMILIES",
    "MLP",
    "OWN",
    "Family",
    "HeadNorm",
    "Latent",
    "Layout",
    "Linear",
    "Norm",
    "NormKind",
    "Projection",
    "Rotary",
    "Rows",
    "Shape",
    "Stack",
    "Stored",
    "Table",
    "catalog",
    "register",
]
