"""GGUF's architectures as families: the config and the tensors that a file holds, in the family's names and layout.

An architecture is a list of rules (`architecture`), written down in `llama_like`, `expert_like` and `gpt_like`. A rule
names one or several GGUF modules, the family's module, and how the converter's change of it is undone (`undo`). Tensors
that no rule names end the opening: a part left out unnoticed would make another model of it. Only architectures that a
test proves are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headspan.checkpoint.config import Config
from headspan.checkpoint.families.gguf.architecture import Architecture, Facts, Rule
from headspan.checkpoint.families.gguf.expert_like import EXPERT_LIKE
from headspan.checkpoint.families.gguf.gpt_like import GPT_LIKE
from headspan.checkpoint.families.gguf.llama_like import LLAMA_LIKE
from headspan.checkpoint.families.gguf.settings import family_config, file_shape
from headspan.checkpoint.families.gguf.undo import Row, Undo
from headspan.checkpoint.families.parts import Shape
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.errors import CheckpointError, UnsupportedModel

ARCHITECTURES: Mapping[str, Architecture] = {one.name: one for one in (*LLAMA_LIKE, *EXPERT_LIKE, *GPT_LIKE)}
NAME = re.compile(r"(?:(enc|dec)\.)?(?:blk\.(\d{1,5})\.)?([a-z0-9_.]+?)\.(weight|bias)")
SETTINGS = ("rope_freqs", "rope_factors_long", "rope_factors_short")
"""Tensors that became fields of the config."""


@dataclass(frozen=True)
class Origin:
    """Where one tensor of a family comes from: tensors of the file, and what is undone."""

    parts: tuple[str, ...]
    undo: Undo
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Place:
    """A tensor's name in its pieces."""

    module: str
    layer: str
    kind: str


def gguf_model(
    metadata: Mapping[str, Any],
    tables: Mapping[str, tuple[float, ...]],
    infos: Mapping[str, TensorInfo],
    place: str,
) -> tuple[Config, dict[str, Origin]]:
    """Config and tensors of the family that a GGUF file belongs to."""
    name = metadata.get("general.architecture")
    architecture = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if architecture is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModel(f"{place} has the GGUF architecture {name!r:.60}; headspan knows {known}")
    own = {key.removeprefix(f"{name}."): value for key, value in metadata.items() if key.startswith(f"{name}.")}
    settings = Config(own, place)
    shape = file_shape(settings)
    facts = Facts(settings, infos.keys(), tables, shape)
    architecture = architecture.variant(architecture, facts)
    if "token_embd.weight" not in infos:
        raise CheckpointError(f"{place} has no tensor 'token_embd.weight'; it is no language model, or a part of one")
    config = family_config(architecture, facts, infos["token_embd.weight"].shape[0], metadata)
    return config, dict(_origins(architecture, shape, infos, place))


def _origins(
    architecture: Architecture, shape: Shape, infos: Mapping[str, TensorInfo], place: str
) -> Iterator[tuple[str, Origin]]:
    rules = {rule.modules[0]: rule for rule in architecture.rules}
    later = {module for rule in architecture.rules for module in rule.modules[1:]}
    for name in infos:
        found = _parsed(name)
        if found is not None and (found.module in SETTINGS or found.module in architecture.ignored):
            continue
        if found is None or (found.module not in rules and found.module not in later):
            raise UnsupportedModel(
                f"{place} has the tensor '{name[:80]}', which headspan does not know of a GGUF {architecture.name}"
            )
        if found.module in rules:
            try:
                yield from _of_rule(rules[found.module], name, found, shape, infos)
            except (KeyError, ValueError, IndexError) as problem:
                raise CheckpointError(
                    f"{place}: tensor '{name[:80]}' is not what a GGUF {architecture.name} has there: {problem}"
                ) from problem


def _parsed(name: str) -> _Place | None:
    match = NAME.fullmatch(name) if len(name) < 200 else None
    if match is None:
        return None
    stack = "" if match[1] is None else f"{match[1]}."
    return _Place(stack + match[3], match[2] or "", match[4])


def _of_rule(
    rule: Rule, name: str, found: _Place, shape: Shape, infos: Mapping[str, TensorInfo]
) -> Iterator[tuple[str, Origin]]:
    parts = (name, *(name.replace(rule.modules[0], module) for module in rule.modules[1:]))
    axes = [infos[part].shape for part in parts]
    target = rule.target.replace("{layer}", found.layer)
    ending = ("" if found.kind == "weight" or target.endswith("_bias") else "_bias") if rule.bare else f".{found.kind}"
    if not rule.per_head:
        undo = rule.undo(shape)
        yield target + ending, Origin(parts, undo, undo.shape(*axes))
        return
    for head in range(axes[0][0]):
        yield target.replace("{head}", str(head)) + ending, Origin(parts, Row(head), Row(head).shape(*axes))
