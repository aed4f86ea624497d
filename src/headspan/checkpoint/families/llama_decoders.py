"""The decoders that resemble Llama: one record each, told as the difference to a relative.

DeepSeek V2 and V3 reach the stream through narrow latent spaces. What a head reads is W_down diag(gain) W_up, with the
gain of the latent's norm; the norm's division by the size of the latent differs from token to token and stays outside.
Positions turn separate features: for queries the last ones of each head, for keys a single set that all heads share and
that skips the latent. These are described `apart`.

In the models that headspan's own lab trains, positions, norm, gains and MLP are choices of a run, so they are read from
the config. A model without norms is told as one whose norms are absent in every layer: its attention reads the stream
as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.families import logits
from headspan.checkpoint.families.description import Stack
from headspan.checkpoint.families.layout import Layout, describe
from headspan.checkpoint.families.parts import Latent, Linear, Projection, Rows, Shape, rms_norm
from headspan.dims import Positions
from headspan.errors import CheckpointError


def _phi(layout: Layout, config: Config) -> Layout:
    names = ("self_attn.q_layernorm", "self_attn.k_layernorm") if config.flag("qk_layernorm") else None
    return replace(layout, head_norms=names)


def _stablelm(layout: Layout, config: Config) -> Layout:
    """Attention and MLP in a row or side by side; optionally a norm for each head."""
    if config.flag("use_parallel_residual"):
        layout = replace(layout, mlp_norm="input_layernorm", parallel=True)
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
    scale=logits.query_scalar_scale,
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
    parallel=True,
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
        parallel=False,
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
        parallel=True,
        tied=True,
    ),
    replace(LLAMA, model_type="granite", scale=logits.multiplier_scale),
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


HOME = "layers.{layer}.self_attn."
LATENT_EPS = 1e-6


def describe_deepseek(config: Config) -> tuple[Stack, ...]:
    """The one decoder stack; `d_head` counts the features that positions leave alone."""
    plain, turned, value = (
        config.integer(name, most=MAX_WIDTH, default=default)
        for name, default in (("qk_nope_head_dim", 128), ("qk_rope_head_dim", 64), ("v_head_dim", 128))
    )
    shape = partial(_shape, d_head=plain, d_value=value)
    layout = replace(
        LLAMA, model_type=config.model_type, shape=shape, scale=partial(logits.latent_scale, width=plain + turned)
    )
    stack = describe(replace(layout, experts=True), config)
    n_heads, bias = stack.n_heads, config.flag("attention_bias")
    queries = _queries(config, n_heads, plain, turned, bias)
    kv_width = config.integer("kv_lora_rank", most=MAX_WIDTH, default=512)
    down = Linear.named(HOME + "kv_a_proj_with_mqa", bias)
    latent = Latent(down, kv_width + turned, kv_width, rms_norm(HOME + "kv_a_layernorm", LATENT_EPS))
    up = Linear.named(HOME + "kv_b_proj")
    return (
        replace(
            stack,
            projections={
                "Q": queries["plain"],
                "K": Projection(up, Rows(n_heads, plain + value, 0, 1, plain), latent),
                "V": Projection(up, Rows(n_heads, plain + value, plain, 1, value), latent),
                "O": Projection(stack.projections["O"].linear, Rows.plain(n_heads, value)),
            },
            apart={
                "Q": queries["turned"],
                "K": Projection(down, Rows(1, kv_width + turned, kv_width, 1, turned)),
            },
            rotary=logits.rotations(
                config, turned, stack.n_layers, interleaved=config.flag("rope_interleave", default=True)
            ),
        ),
    )


def _shape(config: Config, d_head: int, d_value: int) -> Shape:
    # Keys are as many as queries, whatever the config's `num_key_value_heads` says: the latent is what is shared.
    shape = Shape.of(config, kv_heads="", head_width="qk_nope_head_dim")
    return replace(shape, d_head=d_head, d_value=d_value)


def _queries(config: Config, n_heads: int, plain: int, turned: int, bias: bool) -> dict[str, Projection]:
    rank = config.get("q_lora_rank")
    latent = None
    linear = Linear.named(HOME + "q_proj")
    if rank is not None:
        width = config.integer("q_lora_rank", most=MAX_WIDTH)
        down = Linear.named(HOME + "q_a_proj", bias)
        latent = Latent(down, width, width, rms_norm(HOME + "q_a_layernorm", LATENT_EPS))
        linear = Linear.named(HOME + "q_b_proj")
    return {
        "plain": Projection(linear, Rows(n_heads, plain + turned, 0, 1, plain), latent),
        "turned": Projection(linear, Rows(n_heads, plain + turned, plain, 1, turned), latent),
    }


LAB_DEFAULTS: Mapping[str, Any] = {
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
    if positions not in get_args(Positions) or norm not in ("layernorm", "rmsnorm", "none"):
        raise CheckpointError(
            f"{config.place}: 'position_type' {positions!r} or 'norm_type' {norm!r} is none that the lab writes; "
            f"they are {', '.join(get_args(Positions))} and layernorm, rmsnorm, none"
        )
    layers = layout.shape(config).n_layers
    return replace(
        layout,
        positions=positions,
        position_table="embed_positions.weight" if positions in ("learned", "sinusoidal") else None,
        position_terms=("relative_bias",) if positions == "relative" else (),
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
