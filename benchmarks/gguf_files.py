"""GGUF files: what opening and reading them costs.

- `inspect` on a 70B-shaped file with the tokenizer of Llama 3 (128,256 tokens, 280,147 merges): time, and peak memory.
- All heads of a 7B-shaped file, block by block: peak memory.
- Affinity from a GGUF file against affinity from safetensors of the same shape plus unpacking the attention once.
"""

from __future__ import annotations

import json
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import headspan
from benchmarks.measure import best_seconds, process_cost
from benchmarks.sparse_checkpoint import MISTRAL_7B, shapes
from headspan.checkpoint.formats.gguf_types import TYPES

LLAMA_70B = {**MISTRAL_7B, "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80,
             "intermediate_size": 28672, "vocab_size": 128256}  # fmt: skip
SMALL = {**MISTRAL_7B, "hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 12,
         "num_hidden_layers": 12, "intermediate_size": 1024, "vocab_size": 1000}  # fmt: skip
GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers.": "blk.",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
KIND_OF_MATRIX, F32, Q8_0 = 12, 0, 8
TEXT, LIST, U32, FLOAT = 8, 9, 4, 6


def main() -> None:
    """Print every figure with its target."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        _inspect(Path(name) / "70b.gguf")
        _iterate(Path(name) / "7b.gguf")
        _affinity(Path(name))


def _inspect(path: Path) -> None:
    write_gguf(path, LLAMA_70B, KIND_OF_MATRIX, n_merges=280_147)
    took = best_seconds(lambda: headspan.open(path), rounds=3)
    print(f"header of a 70B GGUF file ({path.stat().st_size / 1e9:.0f} GB, sparse): {took:.3f} s (target < 0.5)")
    program = (
        f"import sys; sys.argv = ['headspan', 'inspect', {str(path)!r}]; from headspan.cli.main import main; main()"
    )
    took, peak = process_cost(program, rounds=3)
    print(f"inspect 70B as a process: {took:.3f} s, {peak / 1e6:.0f} MB peak (target < 100)")


def _iterate(path: Path) -> None:
    write_gguf(path, MISTRAL_7B, KIND_OF_MATRIX)
    program = (
        f"import headspan\nheads = headspan.open({str(path)!r}).heads()\n"
        "n = sum(len(block.layers) for block in heads.blocks(memory='400MB'))\nassert n == 32"
    )
    took, peak = process_cost(program, rounds=1)
    print(f"all heads of a 7B GGUF file, block by block: {took:.1f} s, {peak / 1e9:.2f} GB peak (target < 1.5)")


def _affinity(folder: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes(SMALL).items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(SMALL))
    write_gguf(folder / "small.gguf", SMALL, Q8_0, tensors=tensors)
    plain, packed = float("inf"), float("inf")
    for _ in range(3):
        plain = min(plain, _affinity_seconds(folder))
        packed = min(packed, _affinity_seconds(folder / "small.gguf"))
    store = headspan.open(folder / "small.gguf").checkpoint.store
    attention = [name for name in store.infos if "self_attn" in name]
    unpacking = min(_cpu_seconds(lambda: store.read(attention)) for _ in range(3))
    print(
        f"affinity from GGUF: {packed:.2f} s against {plain:.2f} s from safetensors and {unpacking:.2f} s of unpacking "
        f"= {packed / (plain + unpacking):.2f} (target <= 1.3)"
    )


def _affinity_seconds(source: Path) -> float:
    return _cpu_seconds(lambda: headspan.affinity(source, metrics="projection_kernel", draws=2))


def _cpu_seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def write_gguf(
    path: Path, config: dict[str, object], kind: int, n_merges: int = 0, tensors: dict[str, torch.Tensor] | None = None
) -> None:
    """A Llama-like model as a GGUF file, its matrices in the type `kind`: sparse where no tensors are given."""
    facts = _facts(config, n_merges)
    entries, contents, position = b"", [], 0
    for name, shape in shapes(config).items():
        own = kind if len(shape) > 1 else F32
        block = TYPES[own]
        short = name
        for ours, theirs in GGUF_NAMES.items():
            short = short.replace(ours, theirs)
        entries += _text(short.encode()) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], own, position)
        contents.append((position, None if tensors is None else _packed(tensors[name].numpy(), own)))
        n_bytes = int(np.prod(shape)) // block.numbers * block.n_bytes
        position += -(-n_bytes // 32) * 32
    header = b"GGUF" + struct.pack("<IQQ", 3, len(contents), len(facts)) + b"".join(facts) + entries
    header += bytes(-len(header) % 32)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + position)
        for at, content in contents:
            if content is not None:
                file.seek(len(header) + at)
                file.write(content)


def _packed(values: np.ndarray, kind: int) -> bytes:
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    return bytes(quantize(values, GGMLQuantizationType(kind)).tobytes())


def _facts(config: dict[str, object], n_merges: int) -> list[bytes]:
    def number(name: str, field: str) -> bytes:
        return _text(f"llama.{name}".encode()) + struct.pack("<II", U32, int(str(config[field])))

    def texts(name: str, count: int) -> bytes:
        content = b"".join(_text(b"token%d" % index) for index in range(count))
        return _text(name.encode()) + struct.pack("<IIQ", LIST, TEXT, count) + content

    return [
        _text(b"general.architecture") + struct.pack("<I", TEXT) + _text(b"llama"),
        number("block_count", "num_hidden_layers"),
        number("embedding_length", "hidden_size"),
        number("feed_forward_length", "intermediate_size"),
        number("attention.head_count", "num_attention_heads"),
        number("attention.head_count_kv", "num_key_value_heads"),
        _text(b"llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", FLOAT, 1e-5),
        texts("tokenizer.ggml.tokens", int(str(config["vocab_size"]))),
        texts("tokenizer.ggml.merges", n_merges),
    ]


def _text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


if __name__ == "__main__":
    main()
