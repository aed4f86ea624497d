"""Models in TransformerLens' own layout: `HookedTransformer` and the attention-only toy models saved from it.

Its tensors have an axis of heads (`blocks.0.attn.W_Q` is [head, d_model, d_head]) and its config has field names of its
own. Both are put in the words of every other family:

1. W_Q, W_K and W_V become [d_model, head * d_head], W_O [head * d_head, d_model], W_U [vocabulary, d_model].
2. Shapes are read off the tensors where the config is silent; norms, positions and the scale come from the config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headspan.checkpoint.config import Config
from headspan.checkpoint.families.gguf import Origin
from headspan.checkpoint.families.gguf.undo import AsItIs, Axes, Transposed, Undo
from headspan.checkpoint.families.layout import Layout
from headspan.checkpoint.families.parts import Shape
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.dims import Positions
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

MODEL_TYPE = "hooked_transformer"
QUERY = re.compile(r"blocks\.\d+\.attn\.W_Q")
POSITIONS: Mapping[str, Positions] = {
    "standard": "learned",
    "shortformer": "learned",
    "rotary": "rotary",
    "alibi": "alibi",
    "none": "none",
}
"""TransformerLens' words for positions. Shortformer adds the table to what queries and keys read, not to the stream."""
FIELDS = {
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_key_value_heads",
    "hidden_size": "d_model",
    "head_dim": "d_head",
    "intermediate_size": "d_mlp",
    "rope_theta": "rotary_base",
    "eps": "eps",
}
"""Fields of every other config, and TransformerLens' names of them."""
MODULES = {
    "ln1.w": "ln1.weight",
    "ln1.b": "ln1.bias",
    "ln2.w": "ln2.weight",
    "ln2.b": "ln2.bias",
    "mlp.W_in": "mlp.in.weight",
    "mlp.b_in": "mlp.in.bias",
    "mlp.W_gate": "mlp.gate.weight",
    "mlp.W_out": "mlp.out.weight",
    "mlp.b_out": "mlp.out.bias",
    "attn.b_O": "attn.O.bias",
}
"""Tensors of a layer that keep their numbers as they are."""
OUTSIDE = {
    "embed.W_E": "embed.weight",
    "pos_embed.W_pos": "pos_embed.weight",
    "ln_final.w": "ln_final.weight",
    "ln_final.b": "ln_final.bias",
    "unembed.b_U": "unembed.bias",
}
"""Tensors outside the layers that do."""


@dataclass(frozen=True)
class HeadsJoined:
    """Heads stood on an axis of their own: [head, d_model, d_head] becomes [d_model, head * d_head]."""

    def shape(self, *parts: Axes) -> Axes:
        if len(parts[0]) != 3:
            raise ValueError(f"a matrix of heads has the axes head, d_model, d_head; this one has {len(parts[0])}")
        heads, d_model, d_head = parts[0]
        return d_model, heads * d_head

    def apply(self, *parts: Tensor) -> Tensor:
        return parts[0].transpose(0, 1).flatten(1)


@dataclass(frozen=True)
class Flattened:
    """The first two axes were one."""

    def shape(self, *parts: Axes) -> Axes:
        if len(parts[0]) < 2:
            raise ValueError("an axis of heads and one of features were expected")
        return (parts[0][0] * parts[0][1], *parts[0][2:])

    def apply(self, *parts: Tensor) -> Tensor:
        return parts[0].flatten(0, 1)


def is_hooked(names: Mapping[str, TensorInfo]) -> bool:
    """Whether tensors are named as TransformerLens names them."""
    return any(QUERY.fullmatch(name) for name in names)


def hooked_model(infos: Mapping[str, TensorInfo], config: Config) -> tuple[Config, dict[str, Origin]]:
    """Config and tensors of a model in TransformerLens' layout, in the words of every other family."""
    origins: dict[str, Origin] = {}
    for name, info in infos.items():
        target, undo = _target(name)
        if target is not None:
            try:
                origins[target] = Origin((name,), undo, undo.shape(info.shape))
            except ValueError as problem:
                raise CheckpointError(f"tensor '{name}' has shape {info.shape}: {problem}") from problem
    return _config(infos, config), origins


def _target(name: str) -> tuple[str | None, Undo]:
    """The family's name of a tensor and how to get it; None for masks, rotation tables and other buffers."""
    if name in OUTSIDE:
        return OUTSIDE[name], AsItIs()
    if name == "unembed.W_U":
        return "unembed.weight", Transposed()
    match = re.fullmatch(r"(blocks\.\d+\.)(.+)", name)
    if match is None:
        return None, AsItIs()
    layer, rest = match.groups()
    if rest in MODULES:
        return layer + MODULES[rest], AsItIs()
    # Grouped keys and values are stored with an underscore, so that the plain name can repeat them.
    head = re.fullmatch(r"attn\._?([Wb])_([QKVO])", rest)
    if head is None:
        return None, AsItIs()
    kind, role = head.groups()
    part = "weight" if kind == "W" else "bias"
    return f"{layer}attn.{role}.{part}", HeadsJoined() if kind == "W" and role != "O" else Flattened()


def _config(infos: Mapping[str, TensorInfo], config: Config) -> Config:
    """The config in every other family's words; numbers that it lacks are those of the tensors."""
    query = next(name for name in infos if QUERY.fullmatch(name))
    n_heads, d_model, d_head = infos[query].shape
    key = infos.get(query.replace("W_Q", "_W_K"), infos.get(query.replace("W_Q", "W_K")))
    stated = {ours: config.get(theirs) for ours, theirs in FIELDS.items()}
    inferred = {
        "num_hidden_layers": 1 + max(int(name.split(".")[1]) for name in infos if QUERY.fullmatch(name)),
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_heads if key is None else key.shape[0],
        "hidden_size": d_model,
        "head_dim": d_head,
    }
    fields: dict[str, Any] = {**inferred, **{name: value for name, value in stated.items() if value is not None}}
    turned = config.get("rotary_dim")
    if isinstance(turned, int) and turned > 0:
        fields["partial_rotary_factor"] = turned / d_head
    names = {
        name: config.get(name) for name in ("attn_scale", "use_attn_scale", "attention_dir", "rotary_adjacent_pairs")
    }
    return Config(
        {
            **fields,
            **names,
            "model_type": MODEL_TYPE,
            "normalization": _normalization(infos, config),
            "positions": _positions(infos, config),
            "gated": any(name.endswith(".mlp.W_gate") for name in infos),
            "has_mlp": any(name.endswith(".mlp.W_in") for name in infos),
            "parallel_attn_mlp": config.get("parallel_attn_mlp"),
        },
        config.place,
    )


def _normalization(infos: Mapping[str, TensorInfo], config: Config) -> str:
    """LN, LNPre (without parameters), RMS, RMSPre or none; by the tensors where the config does not say."""
    stated = config.fields.get("normalization_type", "")
    if stated is None or stated in ("LN", "LNPre", "RMS", "RMSPre"):
        return stated or "none"
    if stated:
        raise CheckpointError(f"{config.place}: 'normalization_type' is {stated!r:.40}, not LN, LNPre, RMS or RMSPre")
    gain = any(name.endswith(".ln1.w") for name in infos)
    return ("LN" if any(name.endswith(".ln1.b") for name in infos) else "RMS") if gain else "none"


def _positions(infos: Mapping[str, TensorInfo], config: Config) -> Positions:
    stated = config.get("positional_embedding_type")
    if stated is None:
        return "learned" if "pos_embed.W_pos" in infos else "none"
    if stated not in POSITIONS:
        known = ", ".join(POSITIONS)
        raise CheckpointError(f"{config.place}: 'positional_embedding_type' is {stated!r:.40}; headspan knows {known}")
    return POSITIONS[stated]


def _variant(layout: Layout, config: Config) -> Layout:
    norm = config.get("normalization") or "LN"
    positions: Positions = config.get("positions") or "learned"
    without = norm == "none"
    return replace(
        layout,
        causal=config.get("attention_dir") != "bidirectional",
        norm_kind="rmsnorm" if str(norm).startswith("RMS") else "layernorm",
        norm=None if without else "ln1",
        bare_norms=str(norm).endswith("Pre"),
        mlp_norm=None if without else "ln2",
        final_norm=None if without else "ln_final",
        positions=positions,
        position_table="pos_embed.weight" if positions == "learned" else None,
        interleaved=config.flag("rotary_adjacent_pairs"),
        mlp_reads=("mlp.gate", "mlp.in") if config.flag("gated") else ("mlp.in",),
        has_mlp=config.flag("has_mlp", default=True),
        parallel=config.flag("parallel_attn_mlp"),
    )


def _scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """1 / attn_scale, by default 1 / sqrt(d_head); 1 where the config switches it off."""
    if not config.flag("use_attn_scale", default=True):
        return (1.0,) * shape.n_layers
    stated = config.number("attn_scale", default=-1.0)
    return (1 / stated if stated > 0 else shape.d_head**-0.5,) * shape.n_layers


HOOKED = Layout(
    model_type=MODEL_TYPE,
    variant=_variant,
    layer="blocks.{layer}.",
    attention="attn.",
    query_key_value=("attn.Q", "attn.K", "attn.V"),
    output="attn.O",
    stored="in_out",
    scale=_scale,
    norm="ln1",
    norm_eps=("eps", 1e-5),
    mlp_write="mlp.out",
    tokens=("embed.weight",),
    unembedding=("unembed.weight",),
)
HOOKED_DEFAULTS: Mapping[str, Any] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "normalization": "LN",
    "positions": "learned",
}
"""A model for the table of families; a real one says all of it itself."""
