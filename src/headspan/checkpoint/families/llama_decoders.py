"""The decoders that resemble Llama: one record each, told as the difference to a relative."""

from __future__ import annotations

from dataclasses import replace

from headspan.checkpoint.config import Config
from headspan.checkpoint.families import scales
from headspan.checkpoint.families.layout import Layout


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

LLAMA_DECODERS = (
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
