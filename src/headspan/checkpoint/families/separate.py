"""Every family that keeps query, key, value and output as four matrices: one row of a table each.

A row names the tensors and the config fields; the defaults are those of Llama, so that its many relatives are short.
Whether a bias is stored is said by the row: always, as a config field says, or as the file has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.families.description import (
    MLP,
    Linear,
    Norm,
    Projection,
    Rows,
    Shape,
    Stack,
    Table,
    layer_norm,
    rms_norm,
    rotary,
)
from headspan.dims import Positions, Role


@dataclass(frozen=True, kw_only=True)
class SeparateLayout:
    """Names and config fields of a family with separate projections."""

    model_types: tuple[str, ...]
    stack: Literal["decoder", "encoder"] = "decoder"
    positions: Positions = "rotary"

    layer: str = "layers.{layer}."
    attention: str = "self_attn."
    qkvo: tuple[str, str, str, str] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
    qkv_bias: bool | str = False
    o_bias: bool | str = False
    buffers: tuple[str, ...] = ("rotary_emb.inv_freq",)
    scaled: bool = True

    norm_kind: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    norm: str = "input_layernorm"
    norm_place: Literal["before", "after"] = "before"
    norm_eps: tuple[str, float] = ("rms_norm_eps", 1e-6)

    mlp_reads: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    mlp_write: str = "mlp.down_proj"
    mlp_bias: bool | str = False
    mlp_norm: str | None = "post_attention_layernorm"

    tokens: str = "embed_tokens.weight"
    position_table: str | None = None
    unused_positions: int | Literal["up to padding"] = 0
    """Rows at the top of the position table that no position uses; RoBERTa counts on from its padding index."""
    unembedding: tuple[str, ...] = ("lm_head.weight",)
    tied: bool = False
    final_norm: str | None = "norm"

    layers_field: str = "num_hidden_layers"
    heads_field: str = "num_attention_heads"
    kv_heads_field: str = "num_key_value_heads"
    width_field: str = "hidden_size"
    mlp_width_field: str = "intermediate_size"


LLAMA = SeparateLayout(model_types=("llama",), qkv_bias="attention_bias", o_bias="attention_bias")

BERT = SeparateLayout(
    model_types=("bert",),
    stack="encoder",
    positions="learned",
    layer="encoder.layer.{layer}.",
    attention="attention.",
    qkvo=("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    qkv_bias=True,
    o_bias=True,
    buffers=(),
    norm_kind="layernorm",
    norm="attention.output.LayerNorm",
    norm_place="after",
    norm_eps=("layer_norm_eps", 1e-12),
    mlp_reads=("intermediate.dense",),
    mlp_write="output.dense",
    mlp_bias=True,
    mlp_norm=None,
    tokens="embeddings.word_embeddings.weight",
    position_table="embeddings.position_embeddings.weight",
    unembedding=("cls.predictions.decoder.weight",),
    tied=True,
    final_norm=None,
)

LAYOUTS = (
    LLAMA,
    replace(LLAMA, model_types=("mistral",), qkv_bias=False, o_bias=False),
    replace(LLAMA, model_types=("qwen2",), qkv_bias=True, o_bias=False),
    BERT,
    replace(BERT, model_types=("roberta",), unused_positions="up to padding", unembedding=("lm_head.decoder.weight",)),
    replace(
        BERT,
        model_types=("distilbert",),
        layer="transformer.layer.{layer}.",
        qkvo=("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
        norm="sa_layer_norm",
        norm_eps=("", 1e-12),
        mlp_reads=("ffn.lin1",),
        mlp_write="ffn.lin2",
        unembedding=("vocab_projector.weight",),
        layers_field="n_layers",
        heads_field="n_heads",
        width_field="dim",
        mlp_width_field="hidden_dim",
    ),
    SeparateLayout(
        model_types=("gpt_neo",),
        positions="learned",
        layer="h.{layer}.",
        attention="attn.attention.",
        qkvo=(
            "attn.attention.q_proj",
            "attn.attention.k_proj",
            "attn.attention.v_proj",
            "attn.attention.out_proj",
        ),
        o_bias=True,
        buffers=("bias", "masked_bias"),
        scaled=False,
        norm_kind="layernorm",
        norm="ln_1",
        norm_eps=("layer_norm_epsilon", 1e-5),
        mlp_reads=("mlp.c_fc",),
        mlp_write="mlp.c_proj",
        mlp_bias=True,
        mlp_norm="ln_2",
        tokens="wte.weight",
        position_table="wpe.weight",
        tied=True,
        final_norm="ln_f",
        layers_field="num_layers",
        heads_field="num_heads",
    ),
)


def describe_separate(layout: SeparateLayout, config: Config) -> tuple[Stack, ...]:
    """The stack that `layout` describes, with the numbers of `config`."""
    shape = Shape.of(config, layout.layers_field, layout.heads_field, layout.width_field, layout.kv_heads_field)
    scale = shape.d_head**-0.5 if layout.scaled else 1.0
    return (
        Stack(
            name=layout.stack,
            shape=shape,
            causal=layout.stack == "decoder" or config.flag("is_decoder"),
            positions=layout.positions,
            rotary=rotary(config, shape.d_head) if layout.positions == "rotary" else None,
            scale=(scale,) * shape.n_layers,
            attention=layout.layer + layout.attention,
            projections=_projections(layout, config, shape),
            buffers=layout.buffers,
            norm=_norm(layout, config, layout.layer + layout.norm),
            norm_place=layout.norm_place,
            mlp=_mlp(layout, config, shape),
            tokens=Table((layout.tokens,)),
            position_table=_position_table(layout, config),
            unembedding=Table(layout.unembedding),
            tied=config.flag("tie_word_embeddings", default=layout.tied),
            final_norm=None if layout.final_norm is None else _norm(layout, config, layout.final_norm),
        ),
    )


def _projections(layout: SeparateLayout, config: Config, shape: Shape) -> dict[Role, Projection]:
    query, key, value, output = (layout.layer + name for name in layout.qkvo)
    queries, kv = Rows.plain(shape.n_heads, shape.d_head), Rows.plain(shape.n_kv_heads, shape.d_head)
    return {
        "Q": Projection(_linear(query, layout.qkv_bias, config), queries),
        "K": Projection(_linear(key, layout.qkv_bias, config), kv),
        "V": Projection(_linear(value, layout.qkv_bias, config), kv),
        "O": Projection(_linear(output, layout.o_bias, config), queries),
    }


def _linear(name: str, bias: bool | str, config: Config) -> Linear:
    required = config.flag(bias) if isinstance(bias, str) else bias
    return Linear(f"{name}.weight", f"{name}.bias", bias_required=required)


def _norm(layout: SeparateLayout, config: Config, name: str) -> Norm:
    field, default = layout.norm_eps
    make = layer_norm if layout.norm_kind == "layernorm" else rms_norm
    return make(name, config.number(field, default=default))


def _mlp(layout: SeparateLayout, config: Config, shape: Shape) -> MLP:
    return MLP(
        reads=tuple(_linear(layout.layer + name, layout.mlp_bias, config) for name in layout.mlp_reads),
        write=_linear(layout.layer + layout.mlp_write, layout.mlp_bias, config),
        width=config.integer(layout.mlp_width_field, most=MAX_WIDTH, default=4 * shape.d_model),
        norm=None if layout.mlp_norm is None else _norm(layout, config, layout.layer + layout.mlp_norm),
    )


def _position_table(layout: SeparateLayout, config: Config) -> Table | None:
    if layout.position_table is None:
        return None
    unused = layout.unused_positions
    rows = (
        config.integer("pad_token_id", least=0, most=MAX_WIDTH, default=1) + 1 if unused == "up to padding" else unused
    )
    return Table((layout.position_table,), unused_rows=rows)
