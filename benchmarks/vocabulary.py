"""Leading directions of heads in tokens, over what that cannot do without; and a layer of a 7B shape in memory.

1. A GPT-2 shape (12 x 12 heads, d_model 768, 50,257 tokens; random weights, one layer's at a time): singular vectors of
   every W_OV and W_QK in factored form and one product with the vocabulary for every leading direction and side, plain
   torch, against the same with tokens at both ends and concentration. Processor time of one thread, best of several
   runs in turns. Target: 1.5 times.
2. `synthetic:mistral-7b`: 32 heads of one layer, OV and QK, in a process of its own: peak memory within 4 GB. A whole
   run works on such blocks of layers one after another.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import torch

ROUNDS = 3
LAYERS, HEADS, D, R, TOKENS = 1, 12, 768, 64, 50257
TARGET, BUDGET = 1.5, 4.0


def main() -> None:
    """Print every figure with its target."""
    torch.set_num_threads(1)
    _against_bare()
    script = "from benchmarks.vocabulary import large; large()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    print(done.stdout or done.stderr, end="")


def _model() -> object:
    import headspan

    draw = torch.Generator().manual_seed(0)
    tensors = {"wte.weight": torch.randn(TOKENS, D, generator=draw), "wpe.weight": torch.zeros(8, D)}
    for layer in range(LAYERS):
        at = f"h.{layer}."
        tensors[f"{at}attn.c_attn.weight"] = torch.randn(D, 3 * D, generator=draw)
        tensors[f"{at}attn.c_proj.weight"] = torch.randn(D, D, generator=draw)
        tensors |= {f"{at}attn.c_attn.bias": torch.zeros(3 * D), f"{at}attn.c_proj.bias": torch.zeros(D)}
        tensors |= {f"{at}ln_1.{part}": torch.ones(D) for part in ("weight", "bias")}
    tensors |= {f"ln_f.{part}": torch.ones(D) for part in ("weight", "bias")}
    config = {"model_type": "gpt2", "n_embd": D, "n_head": HEADS, "n_layer": LAYERS, "vocab_size": TOKENS}
    return headspan.open((tensors, config)).heads(fold="layernorm")


def _against_bare() -> None:
    from headspan.heads.token_rows import token_rows
    from headspan.lenses.token_reading import TokenTable
    from headspan.lenses.vocabulary.directions import circuit_blocks, circuit_directions
    from headspan.subspaces import Factored

    heads = _model()
    tables = {side: TokenTable(heads, side) for side in ("read", "write")}
    ((_, factors),) = circuit_blocks(heads, ("OV", "QK"), None, 0, (0, 4 * 10**9))
    matrix = {name: token_rows(heads, name).stored for name in ("W_E", "W_U")}

    def bare() -> None:
        for kind, (A, B) in factors.items():
            U, _, Vh = Factored(A, B).svd()
            for vectors, name in ((U[..., :8].mT, "W_E"), (Vh[..., :8, :], "W_U" if kind == "OV" else "W_E")):
                vectors.flatten(0, 1).float() @ matrix[name].T

    def ours() -> None:
        for kind, (A, B) in factors.items():
            found = circuit_directions(A, B, 8, ("read", "write"))
            for side, directions in found.sides.items():
                tables["write" if kind == "OV" and side == "write" else "read"].read(directions.flatten(0, 1), 10)

    best = {"bare": float("inf"), "ours": float("inf")}
    for _ in range(ROUNDS):
        for name, action in (("bare", bare), ("ours", ours)):
            start = time.process_time()
            action()
            best[name] = min(best[name], time.process_time() - start)
    print(
        f"directions with tokens, {LAYERS * HEADS} heads of a GPT-2 shape: {best['ours']:.2f} s of processor time, "
        f"bare {best['bare']:.2f} s, {best['ours'] / best['bare']:.2f} times (target {TARGET:g})"
    )


def large() -> None:
    """Peak memory of one layer of a 7B shape."""
    import headspan

    start = time.process_time()
    labels = ",".join(f"L3H{head}" for head in range(32))
    headspan.vocabulary("synthetic:mistral-7b", head=labels, matrices="OV,QK", draws=100)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    spent = time.process_time() - start
    print(f"32 heads of a 7B shape: peak {peak:.2f} GB (target {BUDGET:g}), {spent:.0f} s of processor time")


if __name__ == "__main__":
    main()
