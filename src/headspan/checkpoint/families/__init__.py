"""Every supported family of models, by the `model_type` of its config.

To add one: where it keeps query, key, value and output apart, add a row to `separate.LAYOUTS`; where it fuses them,
write a small file with a `describe_...` function and register it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from headspan.checkpoint.config import Config
from headspan.checkpoint.families.description import MLP, Linear, Norm, Projection, Rotary, Rows, Stack, Stored, Table
from headspan.checkpoint.families.gpt2 import describe_gpt2
from headspan.checkpoint.families.gpt_neox import describe_gpt_neox
from headspan.checkpoint.families.separate import LAYOUTS, describe_separate

FAMILIES: Mapping[str, Callable[[Config], tuple[Stack, ...]]] = {
    "gpt2": describe_gpt2,
    "gpt_neox": describe_gpt_neox,
    **{model_type: partial(describe_separate, layout) for layout in LAYOUTS for model_type in layout.model_types},
}

__all__ = ["FAMILIES", "MLP", "Linear", "Norm", "Projection", "Rotary", "Rows", "Stack", "Stored", "Table"]
