"""Every decoder-only family: one record each, told as the difference to a relative."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headspan.checkpoint.config import MAX_HEADS, Config
from headspan.checkpoint.families import scales
from headspan.checkpoint.families.description import Shape
from headspan.checkpoint.families.layout import Layout


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
        return replace(layout, mlp_norm="post_attention_layernorm")
    new = config.flag("new_decoder_architecture")
    if new and config.integer("num_ln_in_parallel_attn", most=2, default=2) == 2:
        return replace(layout, norm="ln_attn", mlp_norm="ln_mlp")
    return layout


def _gpt_bigcode_shape(config: Config) -> Shape:
    shape = Shape.of(config, layers="n_layer", heads="n_head", width="n_embd", kv_heads="")
    return replace(shape, n_kv_heads=1 if config.flag("multi_query", default=True) else shape.n_heads)


def _opt(layout: Layout, config: Config) -> Layout:
    """The 350M model norms after each branch; Galactica's norms have no parameters."""
    layout = replace(layout, bare_norms=not config.flag("layer_norm_elementwise_affine", default=True))
    if config.flag("do_layer_norm_before", default=True):
        return layout
    return replace(layout, norm_place="after", mlp_norm=None, final_norm=None)


def _phi(layout: Layout, config: Config) -> Layout:
    names = ("self_attn.q_layernorm", "self_attn.k_layernorm") if config.flag("qk_layernorm") else None
    return replace(layout, head_norms=names)


def _stablelm(layout: Layout, config: Config) -> Layout:
    """Attention and MLP in a row or side by side; optionally a norm for each head."""
    if config.flag("use_parallel_residual"):
        layout = replace(layout, mlp_norm="input_layernorm")
    if not config.flag("qk_layernorm"):
        return layout
    names = ("self_attn.q_layernorm.norms.{head}", "self_attn.k_layernorm.norms.{head}")
    return replace(layout, head_norms=names, head_norm_span="each head")


def _cohere(layout: Layout, config: Config) -> Layout:
    names = ("self_attn.q_norm", "self_attn.k_norm") if config.flag("use_qk_norm") else None
    return replace(layout, head_norms=names, head_norm_span="each head")


LLAMA = Layout(model_type="llama", qkv_bias="attention_bias", output_bias="attention_bias")
QWEN3 = replace(LLAMA, model_type="qwen3", head_norms=("self_attn.q_norm", "self_attn.k_norm"))
GEMMA = replace(LLAMA, model_type="gemma", norm_offset=1.0, tied=True)
GEMMA2 = replace(
    GEMMA,
    model_type="gemma2",
    scale=scales.query_scalar,
    softcap_field="attn_logit_softcapping",
    write_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
)

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
    scale=scales.gpt2,
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
    scale=scales.unscaled,
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
    scale=scales.inverse_root,
    mlp_reads=("mlp.fc_in",),
    mlp_write="mlp.fc_out",
    mlp_norm="ln_1",
    position_table=None,
    tied=False,
)
GPT_NEOX = Layout(
    model_type="gpt_neox",
    shape=partial(Shape.of, kv_heads=""),
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
PHI = replace(
    LLAMA,
    model_type="phi",
    variant=_phi,
    output="self_attn.dense",
    qkv_bias=True,
    output_bias=True,
    rotary_share=0.5,
    head_norm_kind="layernorm",
    norm_kind="layernorm",
    norm_eps=("layer_norm_eps", 1e-5),
    mlp_reads=("mlp.fc1",),
    mlp_write="mlp.fc2",
    mlp_bias=True,
    mlp_norm="input_layernorm",
    final_norm="final_layernorm",
)

DECODERS = (
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
        scale=scales.softmax_scale,
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
    LLAMA,
    replace(LLAMA, model_type="mistral", qkv_bias=False, output_bias=False),
    replace(LLAMA, model_type="mixtral", qkv_bias=False, output_bias=False, experts=True),
    replace(LLAMA, model_type="qwen2", qkv_bias=True, output_bias=False),
    replace(LLAMA, model_type="qwen2_moe", qkv_bias=False, output_bias=False, experts=True),
    QWEN3,
    replace(QWEN3, model_type="qwen3_moe", experts=True),
    GEMMA,
    GEMMA2,
    replace(
        GEMMA2,
        model_type="gemma3_text",
        rotary_theta=(1_000_000.0, 10_000.0),
        full_every=6,
        head_norms=("self_attn.q_norm", "self_attn.k_norm"),
    ),
    PHI,
    replace(
        LLAMA,
        model_type="phi3",
        query_key_value="self_attn.qkv_proj",
        qkv_bias=False,
        output_bias=False,
        mlp_reads=("mlp.gate_up_proj",),
        mlp_fused=True,
    ),
    replace(
        LLAMA,
        model_type="starcoder2",
        qkv_bias="use_bias",
        output_bias="use_bias",
        norm_kind="layernorm",
        norm_eps=("norm_epsilon", 1e-5),
        mlp_reads=("mlp.c_fc",),
        mlp_write="mlp.c_proj",
        mlp_bias="use_bias",
        tied=True,
    ),
    replace(
        LLAMA,
        model_type="olmo",
        norm_kind="layernorm",
        bare_norms=True,
        norm_eps=("", 1e-5),
        clip_field="clip_qkv",
    ),
    replace(
        QWEN3,
        model_type="olmo2",
        head_norm_span="all heads",
        norm="post_attention_layernorm",
        norm_place="after",
        write_norm="post_attention_layernorm",
        mlp_norm=None,
    ),
    replace(
        PHI,
        model_type="stablelm",
        variant=_stablelm,
        output="self_attn.o_proj",
        qkv_bias="use_qkv_bias",
        output_bias=False,
        rotary_share=0.25,
        mlp_reads=LLAMA.mlp_reads,
        mlp_write=LLAMA.mlp_write,
        mlp_bias=False,
        mlp_norm="post_attention_layernorm",
        final_norm="norm",
    ),
    replace(
        LLAMA,
        model_type="cohere",
        variant=_cohere,
        interleaved=True,
        head_norm_kind="layernorm",
        norm_kind="layernorm",
        norm_eps=("layer_norm_eps", 1e-5),
        mlp_norm="input_layernorm",
        tied=True,
    ),
    replace(LLAMA, model_type="granite", scale=scales.multiplier),
    replace(
        LLAMA,
        model_type="gpt_oss",
        qkv_bias=False,
        output_bias=False,
        rotary_theta=(150_000.0, 150_000.0),
        sinks="self_attn.sinks",
        experts=True,
    ),
)
