"""The architectures with experts or latent attention: one record each, told as the difference to Llama."""

from __future__ import annotations

from dataclasses import replace

from headspan.checkpoint.config import MAX_WIDTH
from headspan.checkpoint.families.gguf.architecture import Architecture, Facts, Rule, plain, without
from headspan.checkpoint.families.gguf.llama_like import EXPERTS, GATED, LAYER, MLP, PLAIN, QWEN3, RULES, TOPS
from headspan.checkpoint.families.gguf.undo import Absorbed, Interleaved, Reshaped, Transposed

MOE_FIELDS = {
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
SHARED = (
    Rule(("ffn_gate_inp_shexp",), LAYER + "mlp.shared_expert_gate", lambda shape: Reshaped(lambda count: (1, count))),
    *plain({f"ffn_{part}_shexp": f"{LAYER}mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")}),
)

LATENT = {
    "attn_norm": LAYER + "input_layernorm",
    "attn_q": LAYER + "self_attn.q_proj",
    "attn_q_a": LAYER + "self_attn.q_a_proj",
    "attn_q_a_norm": LAYER + "self_attn.q_a_layernorm",
    "attn_q_b": LAYER + "self_attn.q_b_proj",
    "attn_kv_a_mqa": LAYER + "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": LAYER + "self_attn.kv_a_layernorm",
    "attn_kv_b": LAYER + "self_attn.kv_b_proj",
    "attn_output": LAYER + "self_attn.o_proj",
}
SIGMOID = 2


def _deepseek(architecture: Architecture, facts: Facts) -> Architecture:
    """Version 3 differs from version 2 in how it chooses experts; files of before 2025 have other widths' names."""
    settings = facts.settings
    third = settings.get("expert_gating_func") == SIGMOID or any("exp_probs_b" in name for name in facts.names)
    turned = settings.integer("rope.dimension_count", most=MAX_WIDTH)
    newer = settings.get("attention.key_length_mla") is not None
    key, value = (f"attention.{part}_length" + ("_mla" if newer else "") for part in ("key", "value"))
    whole = settings.integer(key, most=MAX_WIDTH, least=turned + 1)
    fixed = {
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": whole - turned,
        "v_head_dim": settings.integer(value, most=MAX_WIDTH),
        "q_lora_rank": settings.get("attention.q_lora_rank"),
        "num_key_value_heads": facts.shape.n_heads,
        "norm_topk_prob": settings.flag("expert_weights_norm"),
        "n_group": settings.integer("expert_group_count", most=MAX_WIDTH, default=1),
        "topk_group": settings.integer("expert_group_used_count", most=MAX_WIDTH, default=1),
    }
    return replace(architecture, model_type="deepseek_v3" if third else "deepseek_v2").with_fixed(**fixed)


DEEPSEEK2 = Architecture(
    name="deepseek2",
    model_type="deepseek_v2",
    variant=_deepseek,
    head_width=None,
    rules=(
        *plain({**TOPS, **LATENT, **GATED}),
        Rule(("attn_k_b", "attn_v_b"), LAYER + "self_attn.kv_b_proj", lambda shape: Absorbed()),
        *EXPERTS,
        Rule(("exp_probs_b",), LAYER + "mlp.gate.e_score_correction_bias", bare=True),
        *plain({f"ffn_{part}_shexp": f"{LAYER}mlp.shared_experts.{part}_proj" for part in ("gate", "up", "down")}),
    ),
    fields={
        "kv_lora_rank": "attention.kv_lora_rank",
        "first_k_dense_replace": "leading_dense_block_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "n_routed_experts": "expert_count",
        "n_shared_experts": "expert_shared_count",
        "num_experts_per_tok": "expert_used_count",
        "routed_scaling_factor": "expert_weights_scale",
    },
)


EXPERT_LIKE = (
    replace(
        PLAIN,
        name="qwen2moe",
        model_type="qwen2_moe",
        rules=without(RULES, *MLP) + EXPERTS + SHARED,
        fields={**MOE_FIELDS, "shared_expert_intermediate_size": "expert_shared_feed_forward_length"},
    ),
    replace(
        QWEN3,
        name="qwen3moe",
        model_type="qwen3_moe",
        rules=without(QWEN3.rules, *MLP) + EXPERTS,
        fields=MOE_FIELDS,
        fixed={"norm_topk_prob": True},
    ),
    replace(
        PLAIN,
        name="gpt-oss",
        model_type="gpt_oss",
        window_every=2,
        rules=without(RULES, "ffn_norm", *MLP)
        + plain(
            {
                "post_attention_norm": LAYER + "post_attention_layernorm",
                "ffn_gate_inp": LAYER + "mlp.router",
            }
        )
        + (
            Rule(("attn_sinks",), LAYER + "self_attn.sinks", bare=True),
            Rule(
                ("ffn_gate_exps", "ffn_up_exps"),
                LAYER + "mlp.experts.gate_up_proj",
                lambda shape: Interleaved(),
                bare=True,
            ),
            Rule(("ffn_down_exps",), LAYER + "mlp.experts.down_proj", lambda shape: Transposed(3), bare=True),
        ),
        fields={
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "intermediate_size": "expert_feed_forward_length",
            "sliding_window": "attention.sliding_window",
        },
    ),
    DEEPSEEK2,
)
