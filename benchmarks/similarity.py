"""Distances of attention spaces: all pairs of a layer of GPT-2 against a loop over `scipy.linalg.subspace_angles`.

Same bases, same precision (float64), one thread for both. Also from the weights themselves, where our time includes
making the bases, and as a fraction of what a large matrix product reaches on this core.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.linalg
import torch
from threadpoolctl import threadpool_limits

import headspan
from benchmarks.measure import best_seconds, models_folder, ratio
from headspan.subspaces import Subspace, orthonormal_basis, subspace_sum
from headspan.subspaces.distance_tables import distance_table

LAYERS = (0, 5, 11)
MEMORY = 2**28


def main() -> None:
    """Print every figure with its target."""
    torch.set_num_threads(1)
    print(f"threads: {torch.get_num_threads()}")
    folder = models_folder() / "gpt2-attention"
    if not folder.is_dir():
        print(f"GPT-2 attention is not at {folder}: set HEADSPAN_MODELS")
        return
    heads = headspan.open(folder).heads(dtype=torch.float64)
    with threadpool_limits(limits=1):
        _within_layers(heads)
        _whole_model(heads)


def _spaces(heads: headspan.Heads, layer: int) -> Subspace:
    block = heads.layer(layer, ("Q", "K"))
    return subspace_sum(orthonormal_basis(block.W_Q[0]), orthonormal_basis(block.W_K[0]))


def _loop(matrices: np.ndarray) -> list[float]:
    n = len(matrices)
    pairs = ((i, j) for i in range(n) for j in range(i + 1, n))
    return [float(np.linalg.norm(scipy.linalg.subspace_angles(matrices[i], matrices[j]))) for i, j in pairs]


def _within_layers(heads: headspan.Heads) -> None:
    """Bases to distances, and weights to distances, summed over a few layers."""
    n = heads.n_heads
    pairs, upper = len(LAYERS) * n * (n - 1) // 2, np.triu_indices(n, 1)
    times = np.zeros((2, 2))
    for layer in LAYERS:
        S, block = _spaces(heads, layer), heads.layer(layer, ("Q", "K"))
        weights = torch.cat([block.W_Q[0], block.W_K[0]], dim=-1).numpy()
        bases = S.basis.numpy()
        worst = np.abs(distance_table(S, "grassmann", MEMORY)[upper] - _loop(weights)).max()
        assert worst < 1e-8, worst
        times[0] += ratio(lambda S=S: distance_table(S, "grassmann", MEMORY), lambda b=bases: _loop(b), rounds=2)[:2]
        ours = best_seconds(lambda i=layer: distance_table(_spaces(heads, i), "grassmann", MEMORY), rounds=2)
        times[1] += ours, best_seconds(lambda w=weights: _loop(w), rounds=1)
    for name, (ours, theirs) in zip(("from bases (target >= 8)", "making the bases too"), times, strict=True):
        print(
            f"{pairs} pairs within layers, {name}: {ours:.2f} / {theirs:.2f} s, "
            f"{theirs / ours:.1f} times faster than scipy"
        )
    d, p = heads.d_model, 2 * heads.d_head
    flops = 2 * d * p * p + 8 / 3 * p**3
    reached = flops * pairs / times[0, 0]
    print(f"products and singular values: {reached / 1e9:.1f} of {_peak() / 1e9:.1f} GFLOP/s, {reached / _peak():.2f}")


def _peak() -> float:
    A = torch.randn(1536, 1536, dtype=torch.float64)
    return 2 * 1536**3 / best_seconds(lambda: A @ A, rounds=5)


def _whole_model(heads: headspan.Heads) -> None:
    """All 10,296 pairs of GPT-2's heads."""
    S = subspace_sum(orthonormal_basis(heads.W_Q), orthonormal_basis(heads.W_K)).reshape(-1)
    start = time.perf_counter()
    distance_table(S, "grassmann", MEMORY)
    took, pairs = time.perf_counter() - start, len(S.rank) * (len(S.rank) - 1) // 2
    print(f"all {pairs:,} pairs of GPT-2: {took:.1f} s, {took / pairs * 1e3:.2f} ms each")


if __name__ == "__main__":
    main()
