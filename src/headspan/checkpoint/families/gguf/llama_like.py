"""The architectures that resemble Llama: one record each, told as the difference to a relative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headspan.checkpoint.families.gguf.architecture import Architecture, Facts, Maker, Rule, plain, undone, without
from headspan.checkpoint.families.gguf.undo import (
    Joined,
    Shifted,
    Unpaired,
)
from headspan.errors import UnsupportedModel

LAYER = "model.layers.{layer}."
TOPS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ATTENTION = {
    "attn_norm": LAYER + "input_layernorm",
    "attn_q": LAYER + "self_attn.q_proj",
    "attn_k": LAYER + "self_attn.k_proj",
    "attn_v": LAYER + "self_attn.v_proj",
    "attn_output": LAYER + "self_attn.o_proj",
}
GATED = {
    "ffn_norm": LAYER + "post_attention_layernorm",
    "ffn_gate": LAYER + "mlp.gate_proj",
    "ffn_up": LAYER + "mlp.up_proj",
    "ffn_down": LAYER + "mlp.down_proj",
}
HEAD_NORMS = plain({"attn_q_norm": LAYER + "self_attn.q_norm", "attn_k_norm": LAYER + "self_attn.k_norm"})
EXPERTS = (
    Rule(("ffn_gate_inp",), LAYER + "mlp.gate"),
    Rule(("ffn_gate_exps", "ffn_up_exps"), LAYER + "mlp.experts.gate_up_proj", lambda shape: Joined(), bare=True),
    Rule(("ffn_down_exps",), LAYER + "mlp.experts.down_proj", bare=True),
)
RULES = plain({**TOPS, **ATTENTION, **GATED})
MLP = ("ffn_gate", "ffn_up", "ffn_down")
PAIRED: Mapping[str, Maker] = {
    "attn_q": lambda shape: Unpaired(shape.n_heads),
    "attn_k": lambda shape: Unpaired(shape.n_kv_heads),
}
"""llama.cpp turns neighboring features of these architectures, where the family turns those half a head apart."""


def _llama(architecture: Architecture, facts: Facts) -> Architecture:
    """Mixtral has this name too; with biases, Llama's config says that all four matrices have one."""
    if facts.settings.optional("expert_count") is not None:
        rules = (*without(architecture.rules, *MLP), *EXPERTS)
        fields = {"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
        return replace(architecture, model_type="mixtral", rules=rules, fields=fields)
    return architecture.with_fixed(attention_bias="blk.0.attn_q.bias" in facts.names)


LLAMA = Architecture(name="llama", model_type="llama", variant=_llama, rules=undone(RULES, PAIRED))
PLAIN = Architecture(name="", model_type="", rules=RULES)
QWEN3 = replace(PLAIN, name="qwen3", model_type="qwen3", rules=RULES + HEAD_NORMS)
SHIFTED: Mapping[str, Maker] = {
    module: lambda shape: Shifted()
    for module in (
        *("output_norm", "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"),
        *("attn_q_norm", "attn_k_norm"),
    )
}
GEMMA2_NORMS = plain(
    {
        "post_attention_norm": LAYER + "post_attention_layernorm",
        "ffn_norm": LAYER + "pre_feedforward_layernorm",
        "post_ffw_norm": LAYER + "post_feedforward_layernorm",
    }
)
LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}


def _gemma(architecture: Architecture, facts: Facts) -> Architecture:
    """The scale of the logits is not in the file; llama.cpp knows the one size where it is not that of a head."""
    shape = facts.shape
    largest = shape.n_layers == LAYERS_OF_27B[architecture.name]
    return architecture.with_fixed(query_pre_attn_scalar=shape.d_model // shape.n_heads if largest else shape.d_head)


GEMMA2 = Architecture(
    name="gemma2",
    model_type="gemma2",
    variant=_gemma,
    rules=undone(without(RULES, "ffn_norm") + GEMMA2_NORMS, SHIFTED),
    window_every=2,
    fields={
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "sliding_window": "attention.sliding_window",
    },
)
PHI2 = Architecture(
    name="phi2",
    model_type="phi",
    rms=False,
    eps="layer_norm_eps",
    head_width=None,
    rules=without(RULES, "output_norm", "attn_output", "ffn_norm", *MLP)
    + plain(
        {
            "output_norm": "model.final_layernorm",
            "attn_output": LAYER + "self_attn.dense",
            "ffn_up": LAYER + "mlp.fc1",
            "ffn_down": LAYER + "mlp.fc2",
        }
    ),
)


def _stablelm(architecture: Architecture, facts: Facts) -> Architecture:
    return architecture.with_fixed(
        use_qkv_bias="blk.0.attn_q.bias" in facts.names,
        qk_layernorm="blk.0.attn_q_norm.weight" in facts.names,
        use_parallel_residual="blk.0.ffn_norm.weight" not in facts.names,
    )


def _olmo2(architecture: Architecture, facts: Facts) -> Architecture:
    if facts.settings.get("attention.sliding_window") is not None:
        raise UnsupportedModel(f"{facts.settings.place} is an OLMo 3, which headspan does not know")
    return architecture


def _cohere(architecture: Architecture, facts: Facts) -> Architecture:
    return architecture.with_fixed(use_qk_norm="blk.0.attn_q_norm.weight" in facts.names)


LLAMA_LIKE = (
    LLAMA,
    replace(PLAIN, name="qwen2", model_type="qwen2"),
    QWEN3,
    replace(PLAIN, name="gemma", model_type="gemma", rules=undone(RULES, SHIFTED)),
    GEMMA2,
    replace(
        GEMMA2,
        name="gemma3",
        model_type="gemma3_text",
        rules=undone(GEMMA2.rules + HEAD_NORMS, SHIFTED),
        window_every=6,
    ),
    PHI2,
    replace(
        PLAIN,
        name="phi3",
        model_type="phi3",
        head_width=None,
        rules=without(RULES, "attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")
        + plain({"attn_qkv": LAYER + "self_attn.qkv_proj", "ffn_up": LAYER + "mlp.gate_up_proj"}),
        fields={"sliding_window": "attention.sliding_window"},
    ),
    replace(
        PLAIN,
        name="starcoder2",
        model_type="starcoder2",
        rms=False,
        eps="norm_epsilon",
        head_width=None,
        rules=without(RULES, *MLP) + plain({"ffn_up": LAYER + "mlp.c_fc", "ffn_down": LAYER + "mlp.c_proj"}),
    ),
    replace(
        LLAMA,
        name="olmo",
        model_type="olmo",
        variant=PLAIN.variant,
        rules=without(LLAMA.rules, "output_norm", "attn_norm", "ffn_norm"),
        rms=False,
        eps="",
        head_width=None,
        fields={"clip_qkv": "attention.clamp_kqv"},
    ),
    replace(
        PLAIN,
        name="olmo2",
        model_type="olmo2",
        variant=_olmo2,
        head_width=None,
        rules=without(RULES, "attn_norm", "ffn_norm")
        + HEAD_NORMS
        + plain(
            {
                "post_attention_norm": LAYER + "post_attention_layernorm",
                "post_ffw_norm": LAYER + "post_feedforward_layernorm",
            }
        ),
    ),
    replace(
        PLAIN,
        name="stablelm",
        model_type="stablelm",
        variant=_stablelm,
        rms=False,
        eps="layer_norm_eps",
        head_width=None,
        rules=RULES
        + tuple(
            Rule((f"attn_{role}_norm",), f"{LAYER}self_attn.{role}_layernorm.norms.{{head}}", per_head=True)
            for role in ("q", "k")
        ),
    ),
    replace(
        PLAIN,
        name="command-r",
        model_type="cohere",
        variant=_cohere,
        rms=False,
        eps="layer_norm_eps",
        head_width=None,
        rules=without(RULES, "ffn_norm") + HEAD_NORMS,
        fields={"logit_scale": "logit_scale"},
    ),
    replace(
        LLAMA,
        name="granite",
        model_type="granite",
        variant=PLAIN.variant,
        head_width=None,
        fields={
            "attention_multiplier": "attention.scale",
            "embedding_multiplier": "embedding_scale",
            "residual_multiplier": "residual_scale",
            "logits_scaling": "logit_scale",
        },
    ),
)
