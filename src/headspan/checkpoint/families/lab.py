"""The models that headspan's own lab trains: one record, which its config completes.

Positions, norm, gains and MLP are choices of a run, so they are read from the config. A model without norms is told as
one whose norms are absent in every layer: its attention reads the stream as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.families.description import Shape
from headspan.checkpoint.families.layout import Layout
from headspan.errors import CheckpointError

DEFAULTS: Mapping[str, Any] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "hidden_size": 64,
    "position_type": "rotary",
    "norm_type": "layernorm",
    "attention_bias": True,
}
"""The default model, for the table of families; a config.json says all of it itself."""


def _lab(layout: Layout, config: Config) -> Layout:
    positions, norm = config.get("position_type"), config.get("norm_type")
    if positions not in ("rotary", "learned", "none") or norm not in ("layernorm", "rmsnorm", "none"):
        raise CheckpointError(
            f"{config.place}: 'position_type' {positions!r} or 'norm_type' {norm!r} is none that the lab writes; "
            "they are rotary, learned, none and layernorm, rmsnorm, none"
        )
    layers = layout.shape(config).n_layers
    return replace(
        layout,
        positions=positions,
        position_table="embed_positions.weight" if positions == "learned" else None,
        norm_kind="rmsnorm" if norm == "rmsnorm" else "layernorm",
        norm_absent=tuple(range(layers)) if norm == "none" else (),
        bare_norms=norm == "none" or not config.flag("norm_gains", default=True),
        has_mlp=config.integer("intermediate_size", most=MAX_WIDTH, default=0, least=0) > 0,
    )


LAB = Layout(
    model_type="headspan-lab",
    shape=partial(Shape.of, kv_heads=""),
    variant=_lab,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    norm_eps=("layer_norm_eps", 1e-5),
    mlp_reads=("mlp.up_proj",),
    mlp_bias="attention_bias",
    final_norm=None,
)
