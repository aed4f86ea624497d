"""Tiny random models of every supported family, built by `transformers` from its own configs.

Every parameter is random, biases and norms too: a bias left at zero or a gain left at one would hide a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn

COMMON = {"vocab_size": 40, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
STANDARD = {**COMMON, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 30}
GROUPED = {**STANDARD, "num_key_value_heads": 2}


@dataclass(frozen=True)
class Case:
    """One family, or one variant of it."""

    name: str
    model_type: str
    settings: dict[str, Any] = field(hash=False)
    encoder: bool = False

    def model(self, head: bool = False, dtype: torch.dtype = torch.float64) -> transformers.PreTrainedModel:
        """The bare model, or the one with its language-model head."""
        config = transformers.AutoConfig.for_model(self.model_type, **self.settings)
        headed = transformers.AutoModelForMaskedLM if self.encoder else transformers.AutoModelForCausalLM
        model = (headed if head else transformers.AutoModel).from_config(config, attn_implementation="eager")
        randomize(model)
        return model.to(dtype).eval()


def randomize(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.3 * noise if "norm" in name.lower() and "weight" in name else 0.3 * noise)


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
    Case("llama-one-kv-head", "llama", {**STANDARD, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    Case("mistral", "mistral", {**GROUPED, "sliding_window": 3}),
    Case("qwen2", "qwen2", GROUPED),
    Case("bert", "bert", {**STANDARD, "max_position_embeddings": 32}, encoder=True),
    Case(
        "roberta",
        "roberta",
        {**STANDARD, "max_position_embeddings": 34, "pad_token_id": 1, "bos_token_id": 0},
        encoder=True,
    ),
    Case(
        "distilbert",
        "distilbert",
        {"vocab_size": 40, "dim": 24, "n_heads": 4, "n_layers": 2, "hidden_dim": 30, "max_position_embeddings": 32},
        encoder=True,
    ),
]
