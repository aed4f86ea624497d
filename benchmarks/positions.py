"""The positions lens on the whole of GPT-2's attention, against the bare decompositions it cannot do without.

Bare cost, in the same process and on one thread: the weights read once; for every layer and role the Gram matrix of the
whole matrix with its eigenvectors, QR and singular vectors of all heads at once, and the products of both with the
table's directions; for the table two Gram matrices with their eigenvectors.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

import headspan
from benchmarks.measure import models_folder
from headspan.dims import ROLES

TARGET = 3.0
ROUNDS = 2


def main() -> None:
    """Print the ratio with its target."""
    torch.set_num_threads(1)
    folder = models_folder() / "gpt2-attention"
    if not folder.is_dir():
        print(f"GPT-2 attention is not at {folder}: set HEADSPAN_MODELS")
        return
    heads = headspan.open(folder).heads()
    ours, bare = float("inf"), float("inf")
    for _ in range(ROUNDS):
        bare = min(bare, _seconds(lambda: _bare(heads)))
        ours = min(ours, _seconds(lambda: headspan.positions(heads)))
    print(f"lens / bare decompositions: {ours:.1f} / {bare:.1f} s = {ours / bare:.2f} (target <= {TARGET:g})")


def _seconds(action: object) -> float:
    start = time.perf_counter()
    action()  # type: ignore[operator]
    return time.perf_counter() - start


def _eigenvectors(rows: Tensor) -> Tensor:
    return torch.linalg.eigh(rows.mT @ rows).eigenvectors


def _bare(heads: headspan.Heads) -> None:
    P = heads.W_pos.double()
    V, _ = _eigenvectors(P), _eigenvectors(P - P.mean(0))
    for block in heads.blocks("125MB"):
        for place in range(len(block.layers)):
            for role in ROLES:
                W = block.weight(role)[place]
                W = (W.mT if role == "O" else W).double()
                _ = (_eigenvectors(W.movedim(1, 0).flatten(1).mT).mT @ V).square()
                Q, R = torch.linalg.qr(W)
                U = torch.linalg.svd(R).U
                _ = ((Q @ U).mT @ V).square()


if __name__ == "__main__":
    main()
