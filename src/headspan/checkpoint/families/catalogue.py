"""Every family with its layout, as a table: what `headspan families` and the documentation show.

Nothing here is written by hand: each family is described for its default config, and the description is put in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headspan.checkpoint.config import Config
from headspan.checkpoint.config_defaults import defaults
from headspan.checkpoint.families import FAMILIES, OWN, Stack
from headspan.checkpoint.families import lab as own

GROUPED_FIELDS = {"multi_query": True, "new_decoder_architecture": True, "num_key_value_heads": 1, "num_kv_heads": 1}


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


def catalogue() -> Iterator[FamilyFacts]:
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
            besides=_joined(extra for stack in ordered for extra in _besides(stack)),
        )


def default_fields(model_type: str) -> dict[str, Any]:
    """The config of a family's default model: that of `transformers`, or headspan's own."""
    return dict(own.DEFAULTS if model_type in OWN else defaults().get(model_type, {}))


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
    kind = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[stack.norm.kind]
    bare = "" if stack.norm.weight else ", bare,"
    both = " and after" if stack.write_norm is not None and stack.norm_place == "before" else ""
    return f"{kind}{bare} {stack.norm_place}{both}"


def _positions(stack: Stack) -> str:
    if not stack.rotary:
        return stack.positions
    first = stack.rotary[0]
    width = sum(rows.d_head for rows in (stack.apart["Q"].rows,)) if stack.apart else stack.d_head
    part = "" if first.dims == width else f", {first.dims} of {width}"
    pairs = ", neighbours" if first.interleaved else ""
    speeds = ", by layer" if len(set(stack.rotary)) > 1 else ""
    return f"rotary{part}{pairs}{speeds}"


def _besides(stack: Stack) -> Iterator[str]:
    """What sets a family apart, in a word or two."""
    if stack.query_norm is not None:
        yield "normed queries and keys"
    if stack.softcap is not None:
        yield "capped logits"
    if stack.sinks is not None:
        yield "sinks"
    if stack.repeats > 1:
        yield "shared layers"
    if stack.experts:
        yield "experts"
    if stack.reads_memory:
        yield "cross-attention"
