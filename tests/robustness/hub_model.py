"""A model for a Hub on loopback, in every file format: large enough that a header is little beside it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from headspan.checkpoint import open_checkpoint
from headspan.heads import Heads

WEIGHTS = "model.safetensors"
WIDTH, VOCABULARY = 192, 6000
CONFIG = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "num_hidden_layers": 3,
    "intermediate_size": 2400,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
}
KINDS = ("safetensors", "sharded safetensors", "torch", "sharded torch")


def tensors() -> dict[str, torch.Tensor]:
    """A Llama whose attention is a fifteenth of it, large enough that a header is little beside it."""
    shapes = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "lm_head.weight": (VOCABULARY, WIDTH)}
    for layer in range(3):
        prefix = f"model.layers.{layer}."
        attention = {"q": (WIDTH, WIDTH), "k": (WIDTH // 2, WIDTH), "v": (WIDTH // 2, WIDTH), "o": (WIDTH, WIDTH)}
        shapes |= {f"{prefix}self_attn.{part}_proj.weight": shape for part, shape in attention.items()}
        shapes |= {f"{prefix}mlp.{part}_proj.weight": (2400, WIDTH) for part in ("gate", "up")}
        shapes |= {f"{prefix}mlp.down_proj.weight": (WIDTH, 2400), f"{prefix}input_layernorm.weight": (WIDTH,)}
        shapes[f"{prefix}post_attention_layernorm.weight"] = (WIDTH,)
    shapes["model.norm.weight"] = (WIDTH,)
    generator = torch.Generator().manual_seed(5)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def write_model(folder: Path, kind: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 1}}}))
    everything = tensors()
    ending, write = (".bin", torch.save) if kind.endswith("torch") else (".safetensors", save_file)
    stem = "pytorch_model" if ending == ".bin" else "model"
    if not kind.startswith("sharded"):
        write(everything, folder / f"{stem}{ending}")
        return folder
    weight_map = {}
    for number, layers in enumerate((("layers.0", "embed"), ("layers.1", "lm_head"), ("layers.2", "model.norm")), 1):
        part = {name: tensor for name, tensor in everything.items() if any(mark in name for mark in layers)}
        file = f"{stem}-{number:05}-of-00003{ending}"
        write(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / f"{stem}{ending}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def all_heads(heads: Heads) -> list[torch.Tensor]:
    return [heads.W_Q, heads.W_K, heads.W_V, heads.W_O]


def heads_from_the_hub() -> list[torch.Tensor]:
    return all_heads(open_checkpoint("org/tiny").heads())


def agree(folder: Path, heads: list[torch.Tensor]) -> bool:
    """Whether `heads` are those of the model in `folder`, bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(heads, all_heads(open_checkpoint(folder).heads()), strict=True))
