"""Channels of all pairs of GPT-2 against the bare batched SVD of their cores; a 7B shape within its memory budget.

The bare SVD decomposes the same number of d_head x d_head cores in the same process and precision (float64), one thread
for both; cores are not formed for it. Our time is that of the whole lens: weights read and folded, cores of both orders
formed (the two-way null needs the reverse one), nulls, and the strongest channels with their directions.
"""

from __future__ import annotations

import sys
import time

import torch

import headspan
from benchmarks.measure import models_folder, own_peak_bytes

ROUND = 2000
SEVEN_B = "synthetic:mistral-7b?seed=0&layers={layers}"


def main() -> None:
    """Print every figure with its target."""
    torch.set_num_threads(1)
    folder = models_folder() / "gpt2-attention"
    if folder.is_dir():
        _gpt2(folder)
    else:
        print(f"GPT-2 attention is not at {folder}: set HEADSPAN_MODELS")
    _seven_b(int(sys.argv[1]) if sys.argv[1:2] and sys.argv[1].isdecimal() else 3)


def _gpt2(folder: object) -> None:
    heads = headspan.open(folder).heads()
    n_pairs = 3 * heads.n_heads**2 * heads.n_layers * (heads.n_layers - 1) // 2
    cores = torch.randn(ROUND, heads.d_head, heads.d_head, dtype=torch.float64)
    bare = _seconds(lambda: torch.linalg.svd(cores, full_matrices=False)) * n_pairs / ROUND
    ours = _seconds(lambda: headspan.channels(heads, vocabulary=False))
    again = _seconds(lambda: torch.linalg.svd(cores, full_matrices=False)) * n_pairs / ROUND
    bare = min(bare, again)
    print(f"GPT-2, channels of {n_pairs:,} pairs: {ours:.1f} s, bare SVD of the cores {bare:.1f} s")
    print(f"  {ours / bare:.2f} times (target: at most 1.5)")


def _seven_b(layers: int) -> None:
    model = headspan.open(SEVEN_B.format(layers=layers))
    start = time.process_time()
    result = headspan.channels(model, pairings="OK", null="haar", algorithm="exact", vocabulary=False, top=5)
    took, pairs = time.process_time() - start, int(result["OK"].n_pairs)
    print(
        f"7B shape, {layers} layers, {pairs:,} pairs of OK: {took:.0f} s of one core, {took / pairs * 1e3:.2f} ms "
        f"each, peak {own_peak_bytes() / 1e9:.2f} GB (target: at most 4)"
    )


def _seconds(action: object) -> float:
    """Processor time of one thread: other work on the machine does not count."""
    start = time.process_time()
    action()  # type: ignore[operator]
    return time.process_time() - start


if __name__ == "__main__":
    main()
