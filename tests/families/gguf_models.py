"""Tiny models written as GGUF files, with the changes that llama.cpp's converter makes, as its source documents them.

The way there is written independently of the way back: tensors are named through `gguf`'s own table of names, and
changes are spelled with NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from tests.families.tiny_models import CASES, GROUPED, STANDARD, Case

Arrays = dict[str, np.ndarray]

# Heads of 8 features; widths that blocks of 32 fill, so that quantized types fit.
WIDE = {"hidden_size": 32, "intermediate_size": 64}
EVEN = {"qk_nope_head_dim": 6, "v_head_dim": 8}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.25, 1.5, 2.0],
    "long_factor": [1.0, 2.0, 3.0, 4.5],
}


def _case(name: str, **changes: Any) -> Case:
    case = next(case for case in CASES if case.name == name)
    return Case(case.name, case.model_type, {**case.settings, **changes}, case.kind)


GGUF_CASES: dict[str, tuple[str, Case]] = {
    "llama": ("llama", _case("llama", **WIDE)),
    "llama with bias, wide heads": ("llama", _case("llama-with-bias-and-wide-heads", **WIDE)),
    "llama, stretched": ("llama", Case("llama", "llama", {**GROUPED, "hidden_size": 64, "rope_parameters": LLAMA_3})),
    "llama, tied, one kv head": ("llama", _case("llama-one-kv-head")),
    "llama, linear": (
        "llama",
        Case(
            "llama", "llama", {**GROUPED, "rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0}}
        ),
    ),
    "mistral": ("llama", _case("mistral", sliding_window=None)),
    "mixtral": ("llama", _case("mixtral", sliding_window=None, intermediate_size=32)),
    "qwen2": ("qwen2", _case("qwen2", **WIDE)),
    "qwen2, yarn": ("qwen2", _case("qwen2", **WIDE, max_position_embeddings=64, rope_parameters=YARN)),
    "qwen2moe": ("qwen2moe", _case("qwen2_moe")),
    "qwen3": ("qwen3", _case("qwen3")),
    "qwen3moe": ("qwen3moe", _case("qwen3_moe", norm_topk_prob=True)),
    "gemma": ("gemma", _case("gemma")),
    "gemma2": ("gemma2", _case("gemma2", query_pre_attn_scalar=8, sliding_window=4)),
    "gemma3": ("gemma3", _case("gemma3_text", query_pre_attn_scalar=8, num_hidden_layers=7, sliding_window_pattern=6)),
    "phi2": ("phi2", _case("phi", num_key_value_heads=4)),
    "phi3": ("phi3", _case("phi3", **WIDE)),
    "phi3, longrope": (
        "phi3",
        _case(
            "phi3",
            **WIDE,
            max_position_embeddings=64,
            original_max_position_embeddings=16,
            rope_parameters=LONGROPE,
        ),
    ),
    "starcoder2": ("starcoder2", _case("starcoder2")),
    "olmo": ("olmo", _case("olmo")),
    "olmo2": ("olmo2", _case("olmo2")),
    "stablelm": ("stablelm", _case("stablelm")),
    "stablelm, normed queries": ("stablelm", _case("stablelm-normed-queries-in-parallel")),
    "command-r": ("command-r", _case("cohere")),
    "command-r, normed queries": ("command-r", _case("cohere-normed-queries")),
    "granite": ("granite", _case("granite", embedding_multiplier=2.0, residual_multiplier=0.5, logits_scaling=3.0)),
    "gpt-oss": ("gpt-oss", _case("gpt_oss", intermediate_size=32)),
    "deepseek2, version 2": ("deepseek2", _case("deepseek_v2", **EVEN)),
    "deepseek2, whole queries": ("deepseek2", _case("deepseek_v2-whole-queries", attention_bias=False, **EVEN)),
    "deepseek2, version 3": ("deepseek2", _case("deepseek_v3", attention_bias=False, n_group=1, topk_group=1)),
    "deepseek2, whole kv_b": ("deepseek2", _case("deepseek_v2", **EVEN, whole_kv_b=True)),
    "deepseek2, yarn": (
        "deepseek2",
        _case(
            "deepseek_v2",
            **EVEN,
            max_position_embeddings=64,
            rope_parameters={**YARN, "mscale": 0.7, "mscale_all_dim": 0.7},
        ),
    ),
    "gpt2": ("gpt2", _case("gpt2")),
    "starcoder": ("starcoder", _case("gpt_bigcode")),
    "gptneox": ("gptneox", _case("gpt_neox")),
    "gptneox, one after the other": ("gptneox", _case("gpt_neox-without-bias")),
    "bloom": ("bloom", _case("bloom")),
    "falcon, one kv head": ("falcon", _case("falcon-old-multi-query", bias=False)),
    "falcon, grouped": ("falcon", _case("falcon-new-grouped")),
    "falcon, grouped with one norm": ("falcon", _case("falcon-new-with-one-norm")),
    "mpt": ("mpt", _case("mpt")),
    "mpt, clipped": ("mpt", _case("mpt-clipped", attn_config={"clip_qkv": 0.7})),
    "bert": ("bert", Case("bert", "bert", {**STANDARD, "max_position_embeddings": 32}, "reading")),
    "t5": ("t5", _case("t5")),
    "t5, gated": ("t5", _case("t5-gated-deeper-decoder")),
}


def paired(W: np.ndarray, n_heads: int) -> np.ndarray:
    """Rotary pairs side by side."""
    return W.reshape(n_heads, 2, -1, *W.shape[1:]).swapaxes(1, 2).reshape(W.shape)


def sorted_by_role(W: np.ndarray, n_heads: int, n_kv: int) -> np.ndarray:
    """All queries, all keys, all values, from groups of one kv head each."""
    groups = W.reshape(n_kv, n_heads // n_kv + 2, -1, *W.shape[1:])
    parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
    return np.concatenate([part.reshape(-1, *W.shape[1:]) for part in parts])


def converted(arch: str, config: Any, tensors: Arrays) -> Arrays:
    """A family's tensors as the converter hands them to the writer, still under names of its own kind."""
    found: Arrays = {}
    for name, W in tensors.items():
        found |= _converted(arch, config, name, W)
    if arch == "stablelm" and config.qk_layernorm:
        found = _stacked_norms(found)
    return found


def _converted(arch: str, config: Any, name: str, W: np.ndarray) -> Arrays:
    heads = getattr(config, "num_attention_heads", None)
    kv = getattr(config, "num_key_value_heads", None) or heads
    if arch in ("llama", "granite", "olmo") and ".q_proj." in name:
        W = paired(W, heads)
    elif arch in ("llama", "granite", "olmo") and ".k_proj." in name:
        W = paired(W, kv)
    elif arch.startswith("gemma") and name.endswith("norm.weight"):
        W = W + 1
    elif arch == "gpt2" and re.search(r"(c_attn|c_proj|c_fc)\.weight", name):
        W = W.T
    elif "query_key_value" in name:
        kv = (config.num_kv_heads if config.new_decoder_architecture else 1) if arch == "falcon" else heads
        W = sorted_by_role(W, heads, kv)
    if arch == "deepseek2" and name.endswith("kv_b_proj.weight") and not hasattr(config, "whole_kv_b"):
        both = W.reshape(heads, config.qk_nope_head_dim + config.v_head_dim, -1)
        k, v = both[:, : config.qk_nope_head_dim].swapaxes(1, 2), both[:, config.qk_nope_head_dim :]
        return {name.replace("kv_b", "k_b"): k, name.replace("kv_b", "v_b"): v}
    if name.endswith("experts.gate_up_proj"):
        gate, up = np.split(W, 2, axis=1) if arch != "gpt-oss" else (W[..., ::2].mT, W[..., 1::2].mT)
        base = name.removesuffix("gate_up_proj")
        return {f"{base}gate_proj.weight": gate, f"{base}up_proj.weight": up}
    if name.endswith("gate_up_proj_bias"):
        base = name.removesuffix("gate_up_proj_bias")
        return {f"{base}gate_proj.bias": W[..., ::2], f"{base}up_proj.bias": W[..., 1::2]}
    if name.endswith("experts.down_proj"):
        return {f"{name}.weight": W.mT if arch == "gpt-oss" else W}
    if name.endswith("down_proj_bias"):
        return {name.replace("_bias", ".bias"): W}
    if name.endswith("shared_expert_gate.weight"):
        W = W[0]
    return {name + ".weight" if name.endswith("sinks") else name: W}


def _stacked_norms(tensors: Arrays) -> Arrays:
    found = {name: W for name, W in tensors.items() if ".norms." not in name}
    for name in tensors:
        match = re.fullmatch(r"(.*layernorm)\.norms\.0\.weight", name)
        if match is not None:
            rows = [
                tensors[f"{match[1]}.norms.{i}.weight"] for i in range(sum(n.startswith(match[1]) for n in tensors))
            ]
            found[f"{match[1]}.weight"] = np.stack(rows)
    return found


def gguf_names(arch: str, n_layers: int, names: list[str]) -> dict[str, str]:
    """The GGUF name of each tensor, by the package's own table."""
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    table = gguf.get_tensor_name_map(kind, n_layers)
    found = {}
    for name in names:
        asked = name.replace("e_score_correction_bias", "e_score_correction.bias")
        asked = asked.removeprefix("transformer.") if arch == "bloom" else asked
        new = table.get_name(asked, try_suffixes=(".weight", ".bias"))
        assert new is not None, f"gguf has no name for {name}"
        found[name] = new
    return found


def write_gguf(
    path: Path,
    arch: str,
    model: Any,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    also: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
) -> None:
    """Write `model` as the GGUF file `path`, its matrices in `kind`; `also` adds metadata."""
    config = model.config
    tensors = {
        name: tensor.detach().to(torch.float32).numpy()
        for name, tensor in model.state_dict().items()
        if not _left_out(name, config, arch)
    }
    changed = converted(arch, config, tensors)
    writer = gguf.GGUFWriter(path, arch)
    write_settings(writer, arch, config)
    also(writer)
    n_layers = config.num_hidden_layers + (getattr(config, "num_decoder_layers", None) or 0)
    names = gguf_names(arch, n_layers, list(changed))
    for name, W in changed.items():
        W = np.ascontiguousarray(W)
        if W.ndim < 2 or kind == gguf.GGMLQuantizationType.F32 or W.shape[-1] % 32 or "norm" in name:
            writer.add_tensor(names[name], W)
        else:
            writer.add_tensor(names[name], gguf.quants.quantize(W, kind), raw_dtype=kind)
    if arch == "llama" and (config.rope_parameters or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(config))
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type") == "longrope":
        for part in ("long", "short"):
            factors = np.array(config.rope_parameters[f"{part}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{part}.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_parts(whole: Path, folder: Path, arch: str, config: Any) -> list[str]:
    """The tensors of a GGUF file again as one in parts of eight tensors; the names of the parts."""
    folder.mkdir()
    split = gguf.GGUFWriter(folder / "model.gguf", arch, split_max_tensors=8)
    write_settings(split, arch, config)
    for tensor in gguf.GGUFReader(whole).tensors:
        split.add_tensor(tensor.name, tensor.data.copy())
    split.write_header_to_file()
    split.write_kv_data_to_file()
    split.write_tensors_to_file()
    split.close()
    return sorted(path.name for path in folder.iterdir())


def _left_out(name: str, config: Any, arch: str) -> bool:
    tied = getattr(config, "tie_word_embeddings", False) and name == "lm_head.weight"
    return tied or name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight") or "pooler" in name


def rope_divisors(config: Any) -> np.ndarray:
    """What Llama 3's stretch divides each frequency by."""
    settings = config.rope_parameters
    dims = config.head_dim
    frequencies = settings["rope_theta"] ** -(np.arange(0, dims, 2) / dims)
    turns = settings["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / (kept + (1 - kept) / settings["factor"])).astype(np.float32)


def write_settings(writer: gguf.GGUFWriter, arch: str, config: Any) -> None:
    heads, width = config.num_attention_heads, config.hidden_size
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(width)
    writer.add_head_count(heads)
    writer.add_context_length(getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", 64))
    writer.add_feed_forward_length(getattr(config, "intermediate_size", None) or getattr(config, "d_ff", 4 * width))
    kv = {"falcon": "num_kv_heads"}.get(arch, "num_key_value_heads")
    if (arch == "falcon" and not config.new_decoder_architecture) or arch == "starcoder":
        writer.add_head_count_kv(1)
    elif arch != "t5" and getattr(config, kv, None):
        absorbed = arch == "deepseek2" and not hasattr(config, "whole_kv_b")
        writer.add_head_count_kv(1 if absorbed else getattr(config, kv))
    for field in ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"):
        if hasattr(config, field):
            writer.add_layer_norm_eps(getattr(config, field))
    if arch in ("olmo", "mpt"):
        writer.add_layer_norm_eps(1e-5)
    if hasattr(config, "rms_norm_eps") or arch == "t5":
        writer.add_layer_norm_rms_eps(getattr(config, "rms_norm_eps", 1e-6))
    if rope.get("rope_theta"):
        writer.add_rope_freq_base(rope["rope_theta"])
    if rope.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "mscale_all_dim" in rope:
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    if rope.get("rope_type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    d_head = width // heads
    if rope.get("partial_rotary_factor"):
        writer.add_rope_dimension_count(int(d_head * rope["partial_rotary_factor"]))
    own = getattr(config, "head_dim", None) or getattr(config, "d_kv", None)
    if own and arch not in ("deepseek2", "granite"):
        writer.add_key_length(own)
        writer.add_value_length(own)
    for field, write in (
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
        ("final_logit_softcapping", writer.add_final_logit_softcapping),
        ("sliding_window", writer.add_sliding_window),
        ("clip_qkv", writer.add_clamp_kqv),
        ("logit_scale", writer.add_logit_scale),
        ("logits_scaling", writer.add_logit_scale),
        ("attention_multiplier", writer.add_attention_scale),
        ("embedding_multiplier", writer.add_embedding_scale),
        ("residual_multiplier", writer.add_residual_scale),
        ("num_experts", writer.add_expert_count),
        ("num_local_experts", writer.add_expert_count),
        ("num_experts_per_tok", writer.add_expert_used_count),
        ("moe_intermediate_size", writer.add_expert_feed_forward_length),
        ("shared_expert_intermediate_size", writer.add_expert_shared_feed_forward_length),
        ("num_decoder_layers", writer.add_decoder_block_count),
        ("relative_attention_num_buckets", writer.add_relative_attn_buckets_count),
        ("decoder_start_token_id", writer.add_decoder_start_token_id),
    ):
        value = getattr(config, field, None)
        slides = field != "sliding_window" or arch in ("gemma2", "gemma3", "gpt-oss")
        counted = field != "num_experts" or config.model_type in ("qwen2_moe", "qwen3_moe")
        if value is not None and slides and counted:
            write(value)
    _write_others(writer, arch, config)


def _write_others(writer: gguf.GGUFWriter, arch: str, config: Any) -> None:
    if arch == "gptneox":
        writer.add_parallel_residual(config.use_parallel_residual)
    if arch == "mpt":
        writer.add_max_alibi_bias(config.attn_config.alibi_bias_max)
        if config.attn_config.clip_qkv:
            writer.add_clamp_kqv(config.attn_config.clip_qkv)
    if arch == "gpt-oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if arch == "deepseek2":
        key, value = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
        if hasattr(config, "whole_kv_b"):  # files of before 2025
            writer.add_key_length(key)
            writer.add_value_length(value)
        else:
            writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
            writer.add_value_length(config.kv_lora_rank)
            writer.add_key_length_mla(key)
            writer.add_value_length_mla(value)
        writer.add_kv_lora_rank(config.kv_lora_rank)
        writer.add_rope_dimension_count(config.qk_rope_head_dim)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_count(config.n_routed_experts)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        if config.q_lora_rank is not None:
            writer.add_q_lora_rank(config.q_lora_rank)
