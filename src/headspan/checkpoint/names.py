"""From the names a family uses to the names a checkpoint stores.

A family names tensors relative to the model's root (`h.0.attn.c_attn.weight`). A checkpoint may put a wrapper's name
before them (`transformer.`), or several. The prefix is found once, from the query tensor of any layer, and tables that
live outside the root (`lm_head.weight`) are looked for at every level above it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headspan.checkpoint.families import Stack
from headspan.checkpoint.tensors import TensorInfo
from headspan.errors import CheckpointError, MissingTensor

OTHER_SENSES = re.compile(r"vision|visual|image|audio|speech")
"""Words in the prefix of a tower that sees or hears, beside the language model in one checkpoint."""


@dataclass(frozen=True)
class StoredNames:
    """The names of one stack's tensors as this checkpoint spells them."""

    infos: Mapping[str, TensorInfo]
    prefix: str
    place: str

    @classmethod
    def of(cls, infos: Mapping[str, TensorInfo], stack: Stack, place: str) -> StoredNames | None:
        """The spelling of `stack` in a checkpoint, or None where it has no query tensor of any layer."""
        prefixes = _prefixes(infos, stack)
        if len(prefixes) > 1 and stack.name != "vision":
            prefixes = {prefix for prefix in prefixes if not OTHER_SENSES.search(prefix)} or prefixes
        if len(prefixes) > 1:
            raise CheckpointError(
                f"{place} holds several models, under {', '.join(map(repr, sorted(prefixes)[:4]))}; "
                "save the one to be analysed by itself"
            )
        return cls(infos, prefixes.pop(), place) if prefixes else None

    def find(self, *names: str) -> str | None:
        """The stored name of the first of these that is there, at the root or at a level above it."""
        levels = self.prefix.split(".")[:-1]
        for depth in range(len(levels), -1, -1):
            outer = "".join(level + "." for level in levels[:depth])
            for name in names:
                if outer + name in self.infos:
                    return outer + name
        return None

    def require(self, *names: str) -> TensorInfo:
        """Facts about the first of these tensors that is there; a MissingTensor that names them otherwise."""
        found = self.find(*names)
        if found is None:
            raise MissingTensor(
                f"{self.place} has no tensor '{self.prefix}{names[0]}'; it is a partial checkpoint, "
                "or its config belongs to another model"
            )
        return self.infos[found]


def _prefixes(names: Collection[str], stack: Stack) -> set[str]:
    before, _, after = stack.projections["Q"].linear.weight.partition("{layer}")
    keys = r"\d+" if not stack.layer_keys else "|".join(map(re.escape, stack.layer_keys))
    pattern = re.compile(rf"((?:[^\n]*\.)?){re.escape(before)}(?:{keys}){re.escape(after)}")
    matches = (pattern.fullmatch(name) for name in names if name.endswith(after))
    return {match[1] for match in matches if match is not None}
