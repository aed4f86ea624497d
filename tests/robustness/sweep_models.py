"""Small checkpoints by step for sweeps, and a Dask client that runs in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from distributed import Client, LocalCluster
from safetensors.torch import save_file

WIDTH, HEADS, LAYERS, TOKENS = 16, 2, 2, 12
CONFIG = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 24,
    "vocab_size": TOKENS,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def tensors(seed: int, wired: float = 0.0, width: int = WIDTH) -> dict[str, torch.Tensor]:
    """Random weights; with `wired` up to 1, L1H0 reads what L0H0 writes."""
    generator = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (TOKENS, width), "model.norm.weight": (width,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}self_attn.{part}_proj.weight": (width, width) for part in "qkvo"}
        shapes |= {f"{prefix}mlp.{part}_proj.weight": (24, width) for part in ("gate", "up")}
        shapes |= {f"{prefix}mlp.down_proj.weight": (width, 24), f"{prefix}input_layernorm.weight": (width,)}
        shapes[f"{prefix}post_attention_layernorm.weight"] = (width,)
    found = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    d_head = width // HEADS
    written = found["model.layers.0.self_attn.o_proj.weight"][:, :d_head].T
    read = found[f"model.layers.{LAYERS - 1}.self_attn.q_proj.weight"]
    read[:d_head] = (1 - wired) * read[:d_head] + wired * written
    return found


def write_checkpoint(folder: Path, seed: int, wired: float = 0.0, width: int = WIDTH) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": width}))
    save_file(tensors(seed, wired, width), folder / "model.safetensors")
    return folder


def write_series(folder: Path, steps: Sequence[int], seeds: Sequence[int] | None = None) -> Path:
    """Checkpoints `step-N` in a folder; equal seeds give equal weights."""
    for place, step in enumerate(steps):
        write_checkpoint(folder / f"step-{step}", seeds[place] if seeds else step)
    return folder


@contextmanager
def client_in_this_process(workers: int = 1) -> Iterator[Any]:
    """A scheduler and workers in threads: quick to start, and patches of this process reach the workers."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            protocol="inproc://",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def part_bytes(store: Path) -> dict[str, bytes]:
    """Every finished result of a store, byte for byte."""
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.glob("parts/*/[!.]*.npz"))}
