"""The decoders that descend from GPT: one record each, told as the difference to a relative."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headspan.checkpoint.config import MAX_HEADS, Config
from headspan.checkpoint.families import logits
from headspan.checkpoint.families.layout import Layout
from headspan.checkpoint.families.parts import Shape


def _falcon_shape(config: Config) -> Shape:
    shape = Shape.of(config, layers="n_layer", heads="n_head", kv_heads="")
    if config.flag("new_decoder_architecture"):
        kv_heads = config.integer("num_kv_heads", "n_head_kv", most=MAX_HEADS, default=shape.n_heads)
    else:
        kv_heads = 1 if config.flag("multi_query", default=True) else shape.n_heads
    return replace(shape, n_kv_heads=kv_heads)


def _falcon(layout: Layout, config: Config) -> Layout:
    """Alibi or rotary; one norm for both branches, one each, or two in a row."""
    if config.flag("alibi"):
        layout = replace(layout, positions="alibi")
    if not config.flag("parallel_attn", default=True):
        return replace(layout, mlp_norm="post_attention_layernorm", parallel=False)
    new = config.flag("new_decoder_architecture")
    if new and config.integer("num_ln_in_parallel_attn", most=2, default=2) == 2:
        return replace(layout, norm="ln_attn", mlp_norm="ln_mlp")
    return layout


def _gpt_neox(layout: Layout, config: Config) -> Layout:
    """Attention and MLP side by side, unless the config says in a row."""
    return replace(layout, parallel=config.flag("use_parallel_residual", default=True))


def _gpt_bigcode_shape(config: Config) -> Shape:
    shape = Shape.of(config, layers="n_layer", heads="n_head", width="n_embd", kv_heads="")
    return replace(shape, n_kv_heads=1 if config.flag("multi_query", default=True) else shape.n_heads)


def _opt(layout: Layout, config: Config) -> Layout:
    """The 350M model norms after each branch; Galactica's norms have no parameters."""
    layout = replace(layout, bare_norms=not config.flag("layer_norm_elementwise_affine", default=True))
    if config.flag("do_layer_norm_before", default=True):
        return layout
    return replace(layout, norm_place="after", mlp_norm=None, final_norm=None)


GPT2 = Layout(
    model_type="gpt2",
    shape=partial(Shape.of, layers="n_layer", heads="n_head", width="n_embd", kv_heads=""),
    layer="h.{layer}.",
    attention="attn.",
    query_key_value="attn.c_attn",
    output="attn.c_proj",
    qkv_bias=True,
    output_bias=True,
    stored="in_out",
    buffers=("bias", "masked_bias"),
    positions="learned",
    scale=logits.gpt2_scale,
    norm_kind="layernorm",
    norm="ln_1",
    norm_eps=("layer_norm_epsilon", 1e-5),
    mlp_reads=("mlp.c_fc",),
    mlp_write="mlp.c_proj",
    mlp_bias=True,
    mlp_norm="ln_2",
    mlp_width="n_inner",
    tokens=("wte.weight",),
    position_table="wpe.weight",
    tied=True,
    final_norm="ln_f",
)
GPT_NEO = replace(
    GPT2,
    model_type="gpt_neo",
    shape=partial(Shape.of, layers="num_layers", heads="num_heads", kv_heads=""),
    attention="attn.attention.",
    query_key_value=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"),
    output="attn.attention.out_proj",
    qkv_bias=False,
    stored="out_in",
    scale=logits.unit_scale,
    mlp_width="intermediate_size",
)
GPTJ = replace(
    GPT2,
    model_type="gptj",
    query_key_value=("attn.q_proj", "attn.k_proj", "attn.v_proj"),
    output="attn.out_proj",
    qkv_bias=False,
    output_bias=False,
    stored="out_in",
    buffers=("bias", "masked_bias", "embed_positions"),
    positions="rotary",
    interleaved=True,
    scale=logits.inverse_root_scale,
    mlp_reads=("mlp.fc_in",),
    mlp_write="mlp.fc_out",
    mlp_norm="ln_1",
    parallel=True,
    position_table=None,
    tied=False,
)
GPT_NEOX = Layout(
    model_type="gpt_neox",
    shape=partial(Shape.of, kv_heads=""),
    variant=_gpt_neox,
    attention="attention.",
    query_key_value="attention.query_key_value",
    blocks="kv heads",
    output="attention.dense",
    buffers=("bias", "masked_bias", "rotary_emb.inv_freq"),
    rotary_share=0.25,
    norm_kind="layernorm",
    norm_eps=("layer_norm_eps", 1e-5),
    mlp_reads=("mlp.dense_h_to_4h",),
    mlp_write="mlp.dense_4h_to_h",
    mlp_bias=True,
    tokens=("embed_in.weight",),
    unembedding=("embed_out.weight", "lm_head.weight"),
    final_norm="final_layer_norm",
)
BLOOM = replace(
    GPT_NEOX,
    model_type="bloom",
    shape=partial(Shape.of, layers="n_layer", heads="n_head", width="n_embed", kv_heads=""),
    variant=GPT2.variant,
    layer="h.{layer}.",
    attention="self_attention.",
    query_key_value="self_attention.query_key_value",
    output="self_attention.dense",
    qkv_bias=True,
    output_bias=True,
    buffers=(),
    positions="alibi",
    norm_eps=("layer_norm_epsilon", 1e-5),
    mlp_width="",
    tokens=("word_embeddings.weight",),
    unembedding=("lm_head.weight",),
    tied=True,
    final_norm="ln_f",
)

GPT_DECODERS = (
    GPT2,
    GPT_NEO,
    GPTJ,
    replace(
        GPTJ,
        model_type="codegen",
        query_key_value="attn.qkv_proj",
        blocks=4,
        order="QVK",
        buffers=("causal_mask", "bias", "masked_bias", "embed_positions"),
    ),
    GPT_NEOX,
    replace(GPT2, model_type="gpt_bigcode", shape=_gpt_bigcode_shape, blocks="kv heads", stored="out_in"),
    BLOOM,
    replace(
        BLOOM,
        model_type="falcon",
        shape=_falcon_shape,
        variant=_falcon,
        qkv_bias="bias",
        output_bias="bias",
        positions="rotary",
        rotary_share=1.0,
        mlp_bias="bias",
        mlp_norm="input_layernorm",
        parallel=True,
        mlp_width="ffn_hidden_size",
    ),
    Layout(
        model_type="mpt",
        shape=partial(Shape.of, layers="n_layers", heads="n_heads", width="d_model", kv_heads=""),
        layer="blocks.{layer}.",
        attention="attn.",
        query_key_value="attn.Wqkv",
        output="attn.out_proj",
        positions="alibi",
        scale=logits.softmax_scale,
        clip_field="attn_config.clip_qkv",
        norm_kind="layernorm",
        norm="norm_1",
        norm_eps=("layer_norm_epsilon", 1e-5),
        mlp_reads=("ffn.up_proj",),
        mlp_write="ffn.down_proj",
        mlp_norm="norm_2",
        mlp_width="",
        tokens=("wte.weight",),
        tied=True,
        final_norm="norm_f",
    ),
    Layout(
        model_type="opt",
        shape=partial(Shape.of, kv_heads=""),
        variant=_opt,
        layer="decoder.layers.{layer}.",
        output="self_attn.out_proj",
        positions="learned",
        norm_kind="layernorm",
        norm="self_attn_layer_norm",
        norm_eps=("", 1e-5),
        mlp_reads=("fc1",),
        mlp_write="fc2",
        mlp_norm="final_layer_norm",
        mlp_width="ffn_dim",
        tokens=("decoder.embed_tokens.weight",),
        token_width="word_embed_proj_dim",
        tokens_through="decoder.project_in",
        unembedding_through="decoder.project_out",
        position_table="decoder.embed_positions.weight",
        unused_positions=2,
        tied=True,
        final_norm="decoder.final_layer_norm",
    ),
)
