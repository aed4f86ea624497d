"""Families with several stacks: encoder, decoder and the cross-attention between them; text and images."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headspan.checkpoint.config import MAX_LAYERS, Config
from headspan.checkpoint.families import logits
from headspan.checkpoint.families.layout import Layout
from headspan.checkpoint.families.parts import Entry, Shape


def _t5(layout: Layout, config: Config) -> Layout:
    """Version 1.1 has a gate in its MLP."""
    kind = config.get("feed_forward_proj")
    gated = isinstance(kind, str) and kind.startswith("gated")
    return replace(layout, mlp_reads=("DenseReluDense.wi_0", "DenseReluDense.wi_1") if gated else layout.mlp_reads)


_t5_shape = partial(Shape.of, layers="num_layers", heads="num_heads", width="d_model", kv_heads="", head_width="d_kv")


def _t5_decoder_shape(config: Config) -> Shape:
    """As many layers as the encoder unless the config says otherwise."""
    shape = _t5_shape(config)
    return replace(shape, n_layers=config.integer("num_decoder_layers", most=MAX_LAYERS, default=shape.n_layers))


T5_ENCODER = Layout(
    model_type="t5",
    stack="encoder",
    causal=False,
    shape=_t5_shape,
    variant=_t5,
    layer="encoder.block.{layer}.layer.0.",
    attention="SelfAttention.",
    query_key_value=("SelfAttention.q", "SelfAttention.k", "SelfAttention.v"),
    output="SelfAttention.o",
    buffers=(),
    position_terms=("relative_attention_bias.weight",),
    positions="relative",
    scale=logits.unit_scale,
    norm="layer_norm",
    norm_eps=("layer_norm_epsilon", 1e-6),
    mlp_layer="encoder.block.{layer}.layer.1.",
    mlp_reads=("DenseReluDense.wi",),
    mlp_write="DenseReluDense.wo",
    mlp_norm="layer_norm",
    mlp_width="d_ff",
    tokens=("shared.weight", "encoder.embed_tokens.weight"),
    unembedding=(),
    final_norm="encoder.final_layer_norm",
)
T5_DECODER = replace(
    T5_ENCODER,
    stack="decoder",
    causal=True,
    shape=_t5_decoder_shape,
    layer="decoder.block.{layer}.layer.0.",
    mlp_layer="decoder.block.{layer}.layer.2.",
    tokens=("shared.weight", "decoder.embed_tokens.weight"),
    unembedding=("lm_head.weight",),
    tied=True,
    final_norm="decoder.final_layer_norm",
)
T5_CROSS = replace(
    T5_DECODER,
    stack="cross",
    causal=False,
    layer="decoder.block.{layer}.layer.1.",
    attention="EncDecAttention.",
    query_key_value=("EncDecAttention.q", "EncDecAttention.k", "EncDecAttention.v"),
    output="EncDecAttention.o",
    positions="none",
    reads_memory=True,
    memory_norm="encoder.final_layer_norm",
    has_mlp=False,
)

BART_ENCODER = Layout(
    model_type="bart",
    stack="encoder",
    causal=False,
    shape=partial(Shape.of, layers="encoder_layers", heads="encoder_attention_heads", width="d_model", kv_heads=""),
    layer="encoder.layers.{layer}.",
    output="self_attn.out_proj",
    buffers=(),
    positions="learned",
    norm_kind="layernorm",
    norm="self_attn_layer_norm",
    norm_place="after",
    norm_eps=("", 1e-5),
    mlp_reads=("fc1",),
    mlp_write="fc2",
    mlp_bias=True,
    mlp_norm=None,
    mlp_width="encoder_ffn_dim",
    tokens=("shared.weight", "encoder.embed_tokens.weight"),
    position_table="encoder.embed_positions.weight",
    unused_positions=2,
    unembedding=(),
    final_norm=None,
    entry=Entry("{stack}.layernorm_embedding", root_scale="scale_embedding"),
)
BART_DECODER = replace(
    BART_ENCODER,
    stack="decoder",
    causal=True,
    shape=partial(Shape.of, layers="decoder_layers", heads="decoder_attention_heads", width="d_model", kv_heads=""),
    layer="decoder.layers.{layer}.",
    mlp_width="decoder_ffn_dim",
    tokens=("shared.weight", "decoder.embed_tokens.weight"),
    position_table="decoder.embed_positions.weight",
    unembedding=("lm_head.weight",),
    tied=True,
)


def _cross(decoder: Layout, memory_norm: str | None = None) -> Layout:
    """The cross-attention in the layers of a decoder of BART's kind."""
    return replace(
        decoder,
        stack="cross",
        causal=False,
        attention="encoder_attn.",
        query_key_value=("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj"),
        output="encoder_attn.out_proj",
        positions="none",
        norm="encoder_attn_layer_norm",
        reads_memory=True,
        memory_norm=memory_norm,
        has_mlp=False,
    )


WHISPER_ENCODER = replace(
    BART_ENCODER,
    model_type="whisper",
    positions="sinusoidal",
    norm_place="before",
    mlp_norm="final_layer_norm",
    tokens=(),
    unused_positions=0,
    final_norm="encoder.layer_norm",
    entry=None,
)
WHISPER_DECODER = replace(
    BART_DECODER,
    model_type="whisper",
    norm_place="before",
    mlp_norm="final_layer_norm",
    tokens=("decoder.embed_tokens.weight",),
    unused_positions=0,
    unembedding=("proj_out.weight", "lm_head.weight"),
    final_norm="decoder.layer_norm",
    entry=None,
)
CLIP_TEXT = replace(
    BART_ENCODER,
    model_type="clip_text_model",
    stack="text",
    causal=True,
    shape=partial(Shape.of, kv_heads=""),
    qkv_bias=True,
    output_bias=True,
    norm="layer_norm1",
    norm_place="before",
    norm_eps=("layer_norm_eps", 1e-5),
    mlp_reads=("mlp.fc1",),
    mlp_write="mlp.fc2",
    mlp_norm="layer_norm2",
    mlp_width="intermediate_size",
    tokens=("embeddings.token_embedding.weight",),
    position_table="embeddings.position_embedding.weight",
    unused_positions=0,
    final_norm="final_layer_norm",
    entry=None,
)
CLIP_VISION = replace(
    CLIP_TEXT,
    model_type="clip_vision_model",
    stack="vision",
    causal=False,
    tokens=(),
    final_norm="post_layernorm",
)


def _within(layout: Layout, place: str, model_type: str, config_field: str) -> Layout:
    """A model of its own as one part of a larger one."""
    return replace(
        layout,
        model_type=model_type,
        config_field=config_field,
        config_type=layout.model_type,
        layer=place + layout.layer,
        tokens=tuple(place + name for name in layout.tokens),
        position_table=f"{place}{layout.position_table}",
        final_norm=f"{place}{layout.final_norm}",
    )


SEVERAL = (
    (T5_ENCODER, T5_DECODER, T5_CROSS),
    (BART_ENCODER, BART_DECODER, _cross(BART_DECODER)),
    (WHISPER_ENCODER, WHISPER_DECODER, _cross(WHISPER_DECODER, memory_norm="encoder.layer_norm")),
    (
        _within(CLIP_TEXT, "text_model.", model_type="clip", config_field="text_config"),
        _within(CLIP_VISION, "vision_model.", model_type="clip", config_field="vision_config"),
    ),
    (CLIP_TEXT,),
    (CLIP_VISION,),
)
