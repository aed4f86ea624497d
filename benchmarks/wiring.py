"""The whole wiring of GPT-2's shape: against the bare matrix products in the same process.

One thread, float64. The bare work is what no implementation can do without: the Gram matrix of every table and MLP, its
eigenvalues for the null, an orthonormal basis of every head and role, and tr(U U^T C) for every head and matrix, in
torch's batched calls. Ratios are of the best of several runs, measured in turns; on weights drawn with a seed.

1. Every edge with a matrix at one end or both.
2. The whole wiring, over the same work and the kernels of all pairs of heads.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

import headspan
from headspan.heads import Heads

MODEL = "synthetic:gpt2?seed=1"
ROUNDS = 2


def main() -> None:
    """Print every ratio with its target."""
    torch.set_num_threads(1)
    heads = headspan.open(MODEL).heads(dtype="float64")
    table, pairs = _parts(heads)
    found = _best(
        {
            "bare": lambda: _bare(heads),
            "kernels": lambda: _kernels(heads),
            "matrices": table,
            "whole": pairs,
        }
    )
    bare, both = found["bare"], found["bare"] + found["kernels"]
    ratio = found["matrices"] / bare
    print(f"edges with a matrix: {found['matrices']:.2f} s, bare {bare:.2f} s: {ratio:.2f} (target <= 2)")
    print(f"whole wiring: {found['whole']:.2f} s, bare {both:.2f} s: {found['whole'] / both:.2f} (target <= 2)")


def _parts(heads: Heads) -> tuple[Callable[[], object], Callable[[], object]]:
    def matrices() -> None:
        headspan.wiring(heads, src="W_E,W_pos,mlp", progress=False)
        headspan.wiring(heads, src="heads", dst="mlp,logits", progress=False)

    return matrices, lambda: headspan.wiring(heads, progress=False)


def _best(actions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Shortest processor time of each, taken in turns so that a busy spell hits all alike."""
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(ROUNDS):
        for name, action in actions.items():
            start = time.process_time()
            action()
            best[name] = min(best[name], time.process_time() - start)
    return best


def _bases(heads: Heads) -> dict[str, torch.Tensor]:
    """An orthonormal basis of every head and role, by Cholesky factors, [head, d, p]."""
    found = {}
    for role in "QKVO":
        W = heads.whole(role).flatten(0, 1)
        W = W.mT if role == "O" else W
        R = torch.linalg.cholesky(W.mT @ W, upper=True)
        found[role] = torch.linalg.solve_triangular(R.mT, W.mT, upper=False).mT
    return found


def _bare(heads: Heads) -> None:
    """Gram matrices, their eigenvalues, bases, and every inner product of a projector with a form."""
    written = [table.T @ table for table in (heads.table("W_E"), heads.table("W_pos"))]
    unembedding = heads.table("W_U")
    read = [unembedding @ unembedding.T]
    for layer in heads.layers:
        *reads, write = heads.mlp_matrices(layer)
        read.append(sum((W @ W.T for W in reads), torch.zeros(heads.d_model, heads.d_model, dtype=heads.dtype)))
        written.append(write.T @ write)
    for form in (*written, *read):
        torch.linalg.eigvalsh(form)
    for role, U in _bases(heads).items():
        forms = torch.stack(read if role == "O" else written).flatten(1)
        for some in U.split(32):
            (some @ some.mT).flatten(1) @ forms.T


def _kernels(heads: Heads) -> None:
    """Kernels of all pairs of heads, as inner products of projectors."""
    bases = _bases(heads)
    d = heads.d_model
    for start in range(0, d, 32):
        rows = {role: (U[:, start : start + 32] @ U.mT).flatten(1) for role, U in bases.items()}
        for role in "QKV":
            rows["O"] @ rows[role].T


if __name__ == "__main__":
    main()
