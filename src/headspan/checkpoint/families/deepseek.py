"""DeepSeek V2 and V3: queries, keys and values reach the stream through narrow latent spaces.

What a head reads is W_down diag(gain) W_up, with the gain of the latent's norm; the norm's division by the size of the
latent differs from token to token and stays outside. Positions turn separate features: for queries the last ones of
each head, for keys a single set that all heads share and that skips the latent. These are described `apart`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.families import scales
from headspan.checkpoint.families.description import Shape, Stack
from headspan.checkpoint.families.layout import describe
from headspan.checkpoint.families.llama_decoders import LLAMA
from headspan.checkpoint.families.parts import Latent, Linear, Projection, Rows, rms_norm
from headspan.checkpoint.families.rotations import rotations

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
        LLAMA, model_type=config.model_type, shape=shape, scale=partial(scales.latent, width=plain + turned)
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
            rotary=rotations(config, turned, stack.n_layers, interleaved=config.flag("rope_interleave", default=True)),
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
