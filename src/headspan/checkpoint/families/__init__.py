"""Every supported family of models, by the `model_type` of its config.

To add one, write a `Layout` record (in `gpt_decoders`, `llama_decoders`, `encoders` or `several_stacks`); only a family
whose weights do not fit that table needs a `describe_...` function of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headspan.checkpoint.config import Config
from headspan.checkpoint.families.deepseek import describe_deepseek
from headspan.checkpoint.families.description import Shape, Stack
from headspan.checkpoint.families.encoders import ENCODERS, VIT, VIT_IN_MEMORY, describe_albert
from headspan.checkpoint.families.gpt_decoders import GPT_DECODERS
from headspan.checkpoint.families.lab import LAB
from headspan.checkpoint.families.layout import Layout, describe
from headspan.checkpoint.families.llama_decoders import LLAMA_DECODERS
from headspan.checkpoint.families.parts import (
    MLP,
    HeadNorm,
    Latent,
    Linear,
    Norm,
    NormKind,
    Projection,
    Rows,
    Stored,
    Table,
)
from headspan.checkpoint.families.rotations import Rotary
from headspan.checkpoint.families.several_stacks import SEVERAL

Family = Callable[[Config], tuple[Stack, ...]]

FAMILIES: dict[str, Family] = {
    "albert": describe_albert,
    "deepseek_v2": describe_deepseek,
    "deepseek_v3": describe_deepseek,
}


def register(*layouts: Layout) -> None:
    """Make a family known: the layouts of all its stacks, which share one `model_type`.

    Several layouts of one stack are alternative spellings; the one that a checkpoint uses is found when it is opened.
    """

    def described(config: Config) -> tuple[Stack, ...]:
        return tuple(describe(layout, config) for layout in layouts)

    FAMILIES[layouts[0].model_type] = described


def _register_all(families: Iterable[tuple[Layout, ...]]) -> None:
    for layouts in families:
        register(*layouts)


_register_all((layout,) for layout in (*GPT_DECODERS, *LLAMA_DECODERS, *ENCODERS))
_register_all((*SEVERAL, (VIT, VIT_IN_MEMORY), (LAB,)))

OWN = frozenset({LAB.model_type})
"""Families that no other library knows."""

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
    "register",
]
