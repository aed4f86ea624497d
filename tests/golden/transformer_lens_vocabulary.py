"""TransformerLens' `SVDInterpreter` and `FactoredMatrix` on a model folder, run in its own environment as a script.

`SVDInterpreter.get_singular_vectors("OV", layer, head_index=h)` is W_U^T v for the right singular vectors v of W_V W_O,
not centered over tokens, weights as they are stored; of an MLP it takes the right singular vectors of W_out.
"""

from __future__ import annotations

import sys


def main(model: str, out: str) -> None:
    """Write `OV` [layer, head, token, direction], `w_out` [layer, token, direction], `eigenvalues` [layer, head, r]."""
    import numpy as np
    import torch
    from transformer_lens import FactoredMatrix, SVDInterpreter
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(model, device="cpu", dtype=torch.float64)
    interpreter, layers, heads = SVDInterpreter(bridge), bridge.cfg.n_layers, bridge.cfg.n_heads
    with torch.no_grad():
        OV = [
            [interpreter.get_singular_vectors("OV", layer, 4, head)[:, 0] for head in range(heads)]
            for layer in range(layers)
        ]
        w_out = [interpreter.get_singular_vectors("w_out", layer, 4)[:, 0] for layer in range(layers)]
        W_U = bridge.W_U - bridge.W_U.mean(1, keepdim=True)
        eigenvalues = [
            [
                FactoredMatrix(bridge.W_E @ bridge.W_V[layer, head], bridge.W_O[layer, head] @ W_U).eigenvalues
                for head in range(heads)
            ]
            for layer in range(layers)
        ]
        np.savez(
            out,
            OV=torch.stack([torch.stack(each) for each in OV]).numpy(),
            w_out=torch.stack(w_out).numpy(),
            eigenvalues=torch.stack([torch.stack(each) for each in eigenvalues]).numpy(),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
