"""Opening and reading: what `inspect` and `heads` cost against the bare minimum.

- `inspect` on a Mistral-7B-shaped sharded checkpoint against `python -c "import torch"`: time, and peak memory.
- All its heads, layer by layer: peak memory.
- Heads of GPT-2's attention against a plain safetensors load of the same tensors, every byte touched in both.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import headspan
from benchmarks.measure import models_folder, process_cost, ratio
from benchmarks.sparse_checkpoint import MISTRAL_7B, write_sparse_checkpoint


def main() -> None:
    """Print every figure with its target."""
    torch.set_num_threads(1)
    print(f"threads: {torch.get_num_threads()}")
    with tempfile.TemporaryDirectory() as name:
        write_sparse_checkpoint(Path(name), MISTRAL_7B)
        _inspect(name)
        _iterate(name)
    folder = models_folder() / "gpt2-attention"
    if folder.is_dir():
        _load(folder)
    else:
        print(f"GPT-2 attention is not at {folder}: set HEADSPAN_MODELS")


def _inspect(folder: str) -> None:
    inspect = f"import sys; sys.argv = ['headspan', 'inspect', {folder!r}]; from headspan.cli.main import main; main()"
    took, peak = process_cost(inspect)
    torch_took, _ = process_cost("import torch")
    print(f"inspect 7B: {took:.3f} s, {took / torch_took:.2f} of importing torch (target < 1)")
    print(f"inspect 7B: {peak / 1e6:.0f} MB peak (target < 400)")


def _iterate(folder: str) -> None:
    program = (
        f"import headspan\nheads = headspan.open({folder!r}).heads()\n"
        "n = sum(len(block.layers) for block in heads.blocks(memory='400MB'))\nassert n == 32"
    )
    took, peak = process_cost(program, rounds=1)
    print(f"all heads of 7B, block by block: {took:.1f} s, {peak / 1e9:.2f} GB peak (target < 1.5)")


def _load(folder: Path) -> None:
    file = folder / "model.safetensors"

    def plain() -> list[torch.Tensor]:
        return [tensor.sum() for name, tensor in load_file(file).items() if ".attn." in name]

    def ours() -> list[object]:
        heads = headspan.open(folder).heads()
        return [heads.layer(layer) for layer in heads.layers]

    def plain_stacked() -> list[torch.Tensor]:
        tensors = load_file(file)
        parts = ("c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias")
        return [torch.stack([tensors[f"h.{layer}.attn.{part}"] for layer in range(12)]) for part in parts]

    def ours_stacked() -> list[object]:
        return list(headspan.open(folder).heads().blocks(memory="1GB"))

    for name, action, bare in (
        ("layer by layer, against load and touch", ours, plain),
        ("in one block, against load and stack", ours_stacked, plain_stacked),
    ):
        took, bare_took, times = ratio(action, bare, rounds=15)
        print(f"GPT-2 heads, {name}: {took * 1e3:.1f} / {bare_took * 1e3:.1f} ms = {times:.2f} (target <= 1.5)")


if __name__ == "__main__":
    main()
