"""The architectures that resemble GPT or BERT, and T5: one record each, told as the difference to a relative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headspan.checkpoint.families.gguf.architecture import (
    Architecture,
    Facts,
    Maker,
    as_written,
    plain,
    undone,
    without,
)
from headspan.checkpoint.families.gguf.undo import Regrouped, Transposed
from headspan.errors import UnsupportedModel

BLOCK = "transformer.h.{layer}."
TURNED: Mapping[str, Maker] = {
    module: lambda shape: Transposed() for module in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
}
GROUPED: Mapping[str, Maker] = {"attn_qkv": lambda shape: Regrouped(shape.n_heads, shape.n_kv_heads, shape.d_head)}
STARCODER = Architecture(
    name="starcoder",
    model_type="gpt_bigcode",
    rms=False,
    eps="layer_norm_epsilon",
    layers="n_layer",
    heads="n_head",
    kv_heads=None,
    width="n_embd",
    mlp_width="n_inner",
    head_width=None,
    context="n_positions",
    rotary=False,
    rules=plain(
        {
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
            "attn_norm": BLOCK + "ln_1",
            "attn_qkv": BLOCK + "attn.c_attn",
            "attn_output": BLOCK + "attn.c_proj",
            "ffn_norm": BLOCK + "ln_2",
            "ffn_up": BLOCK + "mlp.c_fc",
            "ffn_down": BLOCK + "mlp.c_proj",
        }
    ),
)
NEOX = "gpt_neox.layers.{layer}."


def _gptneox(architecture: Architecture, facts: Facts) -> Architecture:
    return architecture.with_fixed(attention_bias="blk.0.attn_qkv.bias" in facts.names)


GPTNEOX = Architecture(
    name="gptneox",
    model_type="gpt_neox",
    variant=_gptneox,
    rms=False,
    eps="layer_norm_eps",
    kv_heads=None,
    head_width=None,
    rules=undone(
        plain(
            {
                "token_embd": "gpt_neox.embed_in",
                "output_norm": "gpt_neox.final_layer_norm",
                "output": "lm_head",
                "attn_norm": NEOX + "input_layernorm",
                "attn_qkv": NEOX + "attention.query_key_value",
                "attn_output": NEOX + "attention.dense",
                "ffn_norm": NEOX + "post_attention_layernorm",
                "ffn_up": NEOX + "mlp.dense_h_to_4h",
                "ffn_down": NEOX + "mlp.dense_4h_to_h",
            }
        ),
        GROUPED,
    ),
    fields={"use_parallel_residual": "use_parallel_residual"},
)
BLOOM = Architecture(
    name="bloom",
    model_type="bloom",
    rms=False,
    eps="layer_norm_epsilon",
    layers="n_layer",
    heads="n_head",
    kv_heads=None,
    mlp_width=None,
    head_width=None,
    context="seq_length",
    rotary=False,
    rules=undone(
        plain(
            {
                "token_embd": "transformer.word_embeddings",
                "token_embd_norm": "transformer.word_embeddings_layernorm",
                "output_norm": "transformer.ln_f",
                "output": "lm_head",
                "attn_norm": BLOCK + "input_layernorm",
                "attn_qkv": BLOCK + "self_attention.query_key_value",
                "attn_output": BLOCK + "self_attention.dense",
                "ffn_norm": BLOCK + "post_attention_layernorm",
                "ffn_up": BLOCK + "mlp.dense_h_to_4h",
                "ffn_down": BLOCK + "mlp.dense_4h_to_h",
            }
        ),
        GROUPED,
    ),
)


def _falcon(architecture: Architecture, facts: Facts) -> Architecture:
    """One kv head for all, or several; with several, one norm for both branches or one each."""
    if any(name.endswith((".attn_qkv.bias", ".ffn_norm.weight")) for name in facts.names):
        raise UnsupportedModel(f"{facts.settings.place} is a Falcon RW, of which headspan has seen no GGUF file")
    several, both = facts.shape.n_kv_heads > 1, "blk.0.attn_norm_2.weight" in facts.names
    names = {"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"} if both else {"attn_norm": "input_layernorm"}
    norms = plain({module: BLOCK + name for module, name in names.items()})
    fixed = {"new_decoder_architecture": several, "num_ln_in_parallel_attn": 2 if both else 1, "multi_query": True}
    return replace(architecture, rules=architecture.rules + norms).with_fixed(**fixed)


def _mpt(architecture: Architecture, facts: Facts) -> Architecture:
    settings, shape = facts.settings, facts.shape
    bias = settings.number("attention.max_alibi_bias", default=0.0)
    if shape.n_kv_heads < shape.n_heads or bias <= 0 or any("attn_q_norm" in name for name in facts.names):
        raise UnsupportedModel(
            f"{settings.place} is an MPT with grouped heads, normed queries or without ALiBi, which transformers does "
            "not know"
        )
    clip = as_written(settings.number("attention.clamp_kqv", default=0.0)) or None
    return architecture.with_fixed(attn_config={"clip_qkv": clip, "alibi": True, "alibi_bias_max": int(bias)})


MPT = replace(
    STARCODER,
    name="mpt",
    model_type="mpt",
    variant=_mpt,
    layers="n_layers",
    heads="n_heads",
    width="d_model",
    mlp_width=None,
    context="max_seq_len",
    rules=plain(
        {
            "token_embd": "transformer.wte",
            "output_norm": "transformer.norm_f",
            "output": "lm_head",
            "attn_norm": "transformer.blocks.{layer}.norm_1",
            "attn_qkv": "transformer.blocks.{layer}.attn.Wqkv",
            "attn_output": "transformer.blocks.{layer}.attn.out_proj",
            "ffn_norm": "transformer.blocks.{layer}.norm_2",
            "ffn_up": "transformer.blocks.{layer}.ffn.up_proj",
            "ffn_down": "transformer.blocks.{layer}.ffn.down_proj",
        }
    ),
)
ENCODER = "encoder.layer.{layer}."
BERT = Architecture(
    name="bert",
    model_type="bert",
    rms=False,
    eps="layer_norm_eps",
    kv_heads=None,
    head_width=None,
    rotary=False,
    rules=plain(
        {
            "token_embd": "embeddings.word_embeddings",
            "position_embd": "embeddings.position_embeddings",
            "token_types": "embeddings.token_type_embeddings",
            "token_embd_norm": "embeddings.LayerNorm",
            "attn_q": ENCODER + "attention.self.query",
            "attn_k": ENCODER + "attention.self.key",
            "attn_v": ENCODER + "attention.self.value",
            "attn_output": ENCODER + "attention.output.dense",
            "attn_output_norm": ENCODER + "attention.output.LayerNorm",
            "ffn_up": ENCODER + "intermediate.dense",
            "ffn_down": ENCODER + "output.dense",
            "layer_output_norm": ENCODER + "output.LayerNorm",
        }
    ),
    ignored=("cls", "cls.output"),
)


def _t5_stack(prefix: str, stack: str, mlp: int) -> dict[str, str]:
    home = f"{stack}.block.{{layer}}.layer."
    attention = {f"{prefix}.attn_{role}": f"{home}0.SelfAttention.{role}" for role in ("q", "k", "v", "o")}
    cross = {f"{prefix}.cross_attn_{role}": f"{home}1.EncDecAttention.{role}" for role in ("q", "k", "v", "o")}
    return {
        **attention,
        **(cross if stack == "decoder" else {}),
        f"{prefix}.cross_attn_norm": f"{home}1.layer_norm",
        f"{prefix}.attn_rel_b": f"{home}0.SelfAttention.relative_attention_bias",
        f"{prefix}.attn_norm": f"{home}0.layer_norm",
        f"{prefix}.ffn_norm": f"{home}{mlp}.layer_norm",
        f"{prefix}.ffn_gate": f"{home}{mlp}.DenseReluDense.wi_0",
        f"{prefix}.ffn_up": f"{home}{mlp}.DenseReluDense.wi",
        f"{prefix}.ffn_down": f"{home}{mlp}.DenseReluDense.wo",
        f"{prefix}.output_norm": f"{stack}.final_layer_norm",
    }


def _t5(architecture: Architecture, facts: Facts) -> Architecture:
    """With a gate the MLP has a second matrix that reads."""
    decoder = {"num_decoder_layers": facts.settings.get("decoder_block_count") or facts.shape.n_layers}
    if "enc.blk.0.ffn_gate.weight" not in facts.names:
        return architecture.with_fixed(**decoder, feed_forward_proj="relu")
    rules = tuple(
        replace(rule, target=rule.target + "_1") if rule.modules[0].endswith("ffn_up") else rule
        for rule in architecture.rules
    )
    return replace(architecture, rules=rules).with_fixed(**decoder, feed_forward_proj="gated-gelu")


T5 = Architecture(
    name="t5",
    model_type="t5",
    variant=_t5,
    eps="layer_norm_epsilon",
    layers="num_layers",
    heads="num_heads",
    kv_heads=None,
    width="d_model",
    mlp_width="d_ff",
    head_width="d_kv",
    context="n_positions",
    rotary=False,
    rules=plain(
        {
            "token_embd": "shared",
            "output": "lm_head",
            **_t5_stack("enc", "encoder", 1),
            **_t5_stack("dec", "decoder", 2),
        }
    ),
    fields={
        "relative_attention_num_buckets": "attention.relative_buckets_count",
        "decoder_start_token_id": "decoder_start_token_id",
    },
    fixed={"is_encoder_decoder": True},
)

GPT_LIKE = (
    replace(STARCODER, name="gpt2", model_type="gpt2", rules=undone(STARCODER.rules, TURNED)),
    replace(STARCODER, fixed={"multi_query": True}),
    GPTNEOX,
    BLOOM,
    replace(
        BLOOM,
        name="falcon",
        model_type="falcon",
        variant=_falcon,
        layers="num_hidden_layers",
        heads="num_attention_heads",
        kv_heads="num_kv_heads",
        context="max_position_embeddings",
        rotary=True,
        rules=without(BLOOM.rules, "token_embd_norm", "attn_norm", "ffn_norm"),
        fixed={"parallel_attn": True, "alibi": False, "bias": False},
    ),
    MPT,
    BERT,
    T5,
)
