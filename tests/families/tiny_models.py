"""Tiny random models of every supported family, built by `transformers` from its own configs.

Every parameter is random, biases and norms too: a bias left at zero or a gain left at one would hide a mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from torch import nn

COMMON = {"vocab_size": 40, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
STANDARD = {**COMMON, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 30}
GROUPED = {**STANDARD, "num_key_value_heads": 2}
GPT = {**COMMON, "n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 32}
OPT = {**STANDARD, "ffn_dim": 30, "max_position_embeddings": 32, "word_embed_proj_dim": 24}
EXPERTS = {
    "num_local_experts": 2,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 6,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 5,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
    "n_routed_experts": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_position_embeddings": 32}
T5 = {**COMMON, "d_model": 24, "num_heads": 4, "num_layers": 2, "d_ff": 30, "decoder_start_token_id": 0}
TWO_SIDED = {
    **COMMON,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 30,
    "decoder_ffn_dim": 26,
    "decoder_start_token_id": 1,
}
IMAGE = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 30,
    "image_size": 8,
    "patch_size": 4,
}


HEADED = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "translating": "AutoModelForSeq2SeqLM",
    "listening": "AutoModelForSpeechSeq2Seq",
    "seeing": "AutoModel",
    "comparing": "AutoModel",
    "reading": "AutoModel",
}
TOKENS = torch.randint(3, 40, (2, 9), generator=torch.Generator().manual_seed(2))
"""Two sequences of nine tokens."""


@dataclass(frozen=True)
class Case:
    """One family, or one variant of it."""

    name: str
    model_type: str
    settings: dict[str, Any] = field(hash=False)
    kind: str = "causal"

    def model(self, head: bool = False, dtype: torch.dtype = torch.float64) -> transformers.PreTrainedModel:
        """The bare model, or the one with its language-model head."""
        config = transformers.AutoConfig.for_model(self.model_type, **self.settings)
        auto = getattr(transformers, HEADED[self.kind] if head else "AutoModel")
        # Mixtures of experts have no grouped product in float64.
        experts = {"experts_implementation": "eager"} if "num_experts_per_tok" in self.settings else {}
        model = auto.from_config(config, attn_implementation="eager", **experts)
        randomize(model)
        compute_latent_norms_in_full(model)
        return model.to(dtype).eval()

    def inputs(self) -> dict[str, torch.Tensor]:
        """What the model is run on."""
        generator = torch.Generator().manual_seed(3)
        image = {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator, dtype=torch.float64)}
        if self.kind == "seeing":
            return image
        if self.kind == "comparing":
            return {"input_ids": TOKENS, **image}
        if self.kind == "listening":
            sound = torch.randn(2, 8, 24, generator=generator, dtype=torch.float64)
            return {"input_features": sound, "decoder_input_ids": TOKENS}
        if self.kind == "translating":
            return {"input_ids": TOKENS.flip(1), "decoder_input_ids": TOKENS}
        return {"input_ids": TOKENS}


def randomize(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.3 * noise if "norm" in name.lower() and "weight" in name else 0.3 * noise)


def compute_latent_norms_in_full(model: nn.Module) -> None:
    """The same norms without the detour through float32, which would hide all but seven digits of what follows."""

    def full_precision(norm: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: norm.weight * x * (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()

    for name, module in model.named_modules():
        if name.endswith(("q_a_layernorm", "kv_a_layernorm")):
            module.forward = full_precision(module)


CASES = [
    Case("gpt2", "gpt2", {**COMMON, "n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 32}),
    Case(
        "gpt2-scaled-by-layer",
        "gpt2",
        {**COMMON, "n_embd": 24, "n_head": 3, "n_layer": 3, "n_positions": 32, "scale_attn_by_inverse_layer_idx": True},
    ),
    Case(
        "gpt2-unscaled-wide-mlp",
        "gpt2",
        {
            **COMMON,
            "n_embd": 24,
            "n_head": 4,
            "n_layer": 2,
            "n_positions": 32,
            "scale_attn_weights": False,
            "n_inner": 50,
        },
    ),
    Case(
        "gpt_neo",
        "gpt_neo",
        {
            **COMMON,
            "hidden_size": 24,
            "num_heads": 3,
            "num_layers": 2,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 32,
        },
    ),
    Case(
        "gpt_neox",
        "gpt_neox",
        {**STANDARD, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ),
    Case(
        "gpt_neox-without-bias",
        "gpt_neox",
        {**STANDARD, "hidden_size": 32, "attention_bias": False, "use_parallel_residual": False},
    ),
    Case("llama", "llama", GROUPED),
    Case("llama-with-bias-and-wide-heads", "llama", {**GROUPED, "attention_bias": True, "head_dim": 10}),
    Case(
        "llama-with-a-stretched-context",
        "llama",
        {
            **GROUPED,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    Case("llama-one-kv-head", "llama", {**STANDARD, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    Case("mistral", "mistral", {**GROUPED, "sliding_window": 3}),
    Case("qwen2", "qwen2", GROUPED),
    Case("bert", "bert", {**STANDARD, "max_position_embeddings": 32}, kind="masked"),
    Case(
        "roberta",
        "roberta",
        {**STANDARD, "max_position_embeddings": 34, "pad_token_id": 1, "bos_token_id": 0},
        kind="masked",
    ),
    Case(
        "distilbert",
        "distilbert",
        {"vocab_size": 40, "dim": 24, "n_heads": 4, "n_layers": 2, "hidden_dim": 30, "max_position_embeddings": 32},
        kind="masked",
    ),
    Case("gptj", "gptj", {**GPT, "rotary_dim": 4}),
    Case("gptj-turned-whole", "gptj", {**GPT, "rotary_dim": 8}),
    Case("codegen", "codegen", {**GPT, "n_head": 4, "n_embd": 32, "rotary_dim": 4}),
    Case("gpt_bigcode", "gpt_bigcode", GPT),
    Case("gpt_bigcode-without-groups", "gpt_bigcode", {**GPT, "multi_query": False}),
    Case("bloom", "bloom", {**COMMON, "hidden_size": 24, "n_head": 3, "n_layer": 2}),
    Case("falcon-old-multi-query", "falcon", {**STANDARD, "multi_query": True, "bias": True}),
    Case(
        "falcon-71-heads-read-one",
        "falcon",
        {**STANDARD, "hidden_size": 71 * 2, "num_attention_heads": 71, "multi_query": True},
    ),
    Case(
        "falcon-old-without-groups",
        "falcon",
        {**STANDARD, "multi_query": False, "alibi": True, "parallel_attn": False, "bias": True},
    ),
    Case("falcon-new-grouped", "falcon", {**STANDARD, "new_decoder_architecture": True, "num_kv_heads": 2}),
    Case(
        "falcon-new-with-one-norm",
        "falcon",
        {**STANDARD, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    Case("mpt", "mpt", {**COMMON, "d_model": 24, "n_heads": 4, "n_layers": 2, "max_seq_len": 32}),
    Case(
        "mpt-clipped",
        "mpt",
        {
            **COMMON,
            "d_model": 24,
            "n_heads": 4,
            "n_layers": 2,
            "max_seq_len": 32,
            "attn_config": {"clip_qkv": 0.7, "softmax_scale": 0.3},
        },
    ),
    Case("opt", "opt", OPT),
    Case("opt-norm-after-narrow-tokens", "opt", {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 10}),
    Case("opt-bare-norms", "opt", {**OPT, "layer_norm_elementwise_affine": False, "enable_bias": False}),
    Case("mixtral", "mixtral", {**GROUPED, **EXPERTS}),
    Case("qwen2-14-heads-read-two", "qwen2", {**GROUPED, "hidden_size": 14 * 4, "num_attention_heads": 14}),
    Case("qwen2_moe", "qwen2_moe", {**GROUPED, **EXPERTS}),
    Case("qwen3", "qwen3", {**GROUPED, "head_dim": 8}),
    Case("qwen3_moe", "qwen3_moe", {**GROUPED, **EXPERTS, "head_dim": 8}),
    Case("gemma", "gemma", {**GROUPED, "head_dim": 8}),
    Case("gemma2", "gemma2", {**GROUPED, "head_dim": 8, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 5}),
    Case(
        "gemma3_text",
        "gemma3_text",
        {**GROUPED, "head_dim": 8, "num_hidden_layers": 3, "sliding_window": 4, "sliding_window_pattern": 3},
    ),
    Case("phi", "phi", {**GROUPED, "hidden_size": 32}),
    Case("phi-normed-queries", "phi", {**GROUPED, "qk_layernorm": True, "hidden_size": 32}),
    Case("phi3", "phi3", {**GROUPED, "pad_token_id": 0}),
    Case("starcoder2", "starcoder2", GROUPED),
    Case("olmo", "olmo", {**GROUPED, "clip_qkv": 0.8}),
    Case("olmo2", "olmo2", GROUPED),
    Case("stablelm", "stablelm", {**GROUPED, "hidden_size": 32, "use_qkv_bias": True}),
    Case(
        "stablelm-normed-queries-in-parallel",
        "stablelm",
        {**GROUPED, "hidden_size": 32, "qk_layernorm": True, "use_parallel_residual": True},
    ),
    Case("cohere", "cohere", GROUPED),
    Case("cohere-normed-queries", "cohere", {**GROUPED, "use_qk_norm": True}),
    Case("granite", "granite", {**GROUPED, "attention_multiplier": 0.3}),
    Case(
        "gpt_oss",
        "gpt_oss",
        {**GROUPED, **EXPERTS, "head_dim": 8, "sliding_window": 4, "rope_parameters": {"rope_type": "default"}},
    ),
    Case("deepseek_v2", "deepseek_v2", {**STANDARD, **EXPERTS, **LATENT}),
    Case(
        "deepseek_v2-whole-queries",
        "deepseek_v2",
        {**STANDARD, **EXPERTS, **LATENT, "q_lora_rank": None, "attention_bias": True},
    ),
    Case("deepseek_v3", "deepseek_v3", {**STANDARD, **EXPERTS, **LATENT, "attention_bias": True}),
    Case("deepseek_v3-pairs-of-halves", "deepseek_v3", {**STANDARD, **EXPERTS, **LATENT, "rope_interleave": False}),
    Case(
        "xlm-roberta",
        "xlm-roberta",
        {**STANDARD, "max_position_embeddings": 34, "pad_token_id": 1, "bos_token_id": 0},
        kind="masked",
    ),
    Case("albert", "albert", {**STANDARD, "num_hidden_layers": 6, "embedding_size": 10}, kind="masked"),
    Case(
        "albert-two-groups-of-two",
        "albert",
        {**STANDARD, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2, "embedding_size": 10},
        kind="masked",
    ),
    Case("electra", "electra", {**STANDARD, "embedding_size": 10}, kind="masked"),
    Case("mpnet", "mpnet", {**STANDARD, "max_position_embeddings": 34, "pad_token_id": 1}, kind="masked"),
    Case("deberta-v2", "deberta-v2", {**STANDARD, **DISENTANGLED}, kind="masked"),
    Case(
        "deberta-v2-shared-projections",
        "deberta-v2",
        {**STANDARD, **DISENTANGLED, "share_att_key": True, "position_biased_input": False},
        kind="masked",
    ),
    Case(
        "modernbert",
        "modernbert",
        {**STANDARD, "num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 4},
        kind="masked",
    ),
    Case("t5", "t5", {**T5, "d_kv": 5}, kind="translating"),
    Case(
        "t5-gated-deeper-decoder",
        "t5",
        {**T5, "num_decoder_layers": 3, "feed_forward_proj": "gated-gelu"},
        "translating",
    ),
    Case("bart", "bart", {**TWO_SIDED, "decoder_attention_heads": 3, "max_position_embeddings": 32}, "translating"),
    Case(
        "whisper",
        "whisper",
        {**TWO_SIDED, "num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 16, "decoder_layers": 3},
        kind="listening",
    ),
    Case("vit", "vit", {**IMAGE, "qkv_bias": True}, kind="seeing"),
    Case("vit-without-bias", "vit", {**IMAGE, "qkv_bias": False}, kind="seeing"),
    Case(
        "clip",
        "clip",
        {
            "text_config": {**STANDARD, "max_position_embeddings": 32},
            "vision_config": {**IMAGE, "num_attention_heads": 3, "num_hidden_layers": 3},
            "projection_dim": 10,
        },
        kind="comparing",
    ),
    Case("clip_text_model", "clip_text_model", {**STANDARD, "max_position_embeddings": 32}, kind="reading"),
    Case("clip_vision_model", "clip_vision_model", IMAGE, kind="seeing"),
]

DIFFERENT = (
    "gpt2",
    "gpt_neox",
    "llama-one-kv-head",
    "gemma2",
    "qwen2_moe",
    "deepseek_v3",
    "bert",
    "albert",
    "t5",
    "whisper",
    "vit",
)
"""Families that differ most: fused, parallel, grouped, twice normed, of experts, latent, post-norm, shared, several
stacks, images. Long tests run on these by default and on every family in the slow suite."""
by_family = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in DIFFERENT else pytest.mark.slow) for case in CASES],
    ids=lambda case: case.name,
)
