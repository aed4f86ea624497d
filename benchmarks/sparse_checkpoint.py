"""A sharded checkpoint of any Llama-like shape, as sparse files: full-size headers and offsets, no bytes on disk."""

from __future__ import annotations

import json
import struct
from pathlib import Path

MISTRAL_7B = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "rms_norm_eps": 1e-5,
}


def write_sparse_checkpoint(folder: Path, config: dict[str, object], shard_bytes: int = 5 * 10**9) -> None:
    """Write config, index and shards of a bfloat16 model whose weights are all zero."""
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    filled = 0
    for name, shape in shapes(config).items():
        size = 2 * _items(shape)
        if filled + size > shard_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = shape
        filled += size
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        _write_sparse_shard(folder / file, shard)
        weight_map |= dict.fromkeys(shard, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(config))


def shapes(config: dict[str, object]) -> dict[str, tuple[int, ...]]:
    """Every tensor of a Llama with this config, with its shape."""
    d, heads, kv, layers, mlp, vocab = (
        int(str(config[key]))
        for key in (
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "num_hidden_layers",
            "intermediate_size",
            "vocab_size",
        )
    )
    kv_width = d // heads * kv
    tensors: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, d)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= {
            f"{prefix}self_attn.q_proj.weight": (d, d),
            f"{prefix}self_attn.k_proj.weight": (kv_width, d),
            f"{prefix}self_attn.v_proj.weight": (kv_width, d),
            f"{prefix}self_attn.o_proj.weight": (d, d),
            f"{prefix}mlp.gate_proj.weight": (mlp, d),
            f"{prefix}mlp.up_proj.weight": (mlp, d),
            f"{prefix}mlp.down_proj.weight": (d, mlp),
            f"{prefix}input_layernorm.weight": (d,),
            f"{prefix}post_attention_layernorm.weight": (d,),
        }
    return tensors | {"model.norm.weight": (d,), "lm_head.weight": (vocab, d)}


def _items(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def _write_sparse_shard(path: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    header, position = {}, 0
    for name, shape in tensors.items():
        end = position + 2 * _items(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + position)
