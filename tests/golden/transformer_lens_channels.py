"""TransformerLens' `FactoredMatrix` products of two heads' circuits, run in its own environment as a script.

W_V W_O and W_Q W_K^T of a head are `FactoredMatrix`es; `@` keeps their product factored, `.T` turns it, and `.U`, `.S`,
`.V` are its singular value decomposition. Weights are as stored.
"""

from __future__ import annotations

import sys


def main(model: str, out: str) -> None:
    """Write `<pairing>_S` [pair, r], `<pairing>_U` and `<pairing>_V` [pair, d, r]; heads of layers 0 and 1."""
    import numpy as np
    import torch
    from transformer_lens import FactoredMatrix
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(model, device="cpu", dtype=torch.float64)
    heads, answers = range(bridge.cfg.n_heads), {}
    with torch.no_grad():
        OV = {(layer, h): FactoredMatrix(bridge.W_V[layer, h], bridge.W_O[layer, h]) for layer in (0, 1) for h in heads}
        QK = {h: FactoredMatrix(bridge.W_Q[1, h], bridge.W_K[1, h].T) for h in heads}
        readers = {
            "OQ": [QK[h] for h in heads],
            "OK": [QK[h].T for h in heads],
            "OV": [OV[1, h] for h in heads],
        }
        for pairing, circuits in readers.items():
            composed = [OV[0, h] @ each for h in heads for each in circuits]
            answers[f"{pairing}_S"] = torch.stack([each.S for each in composed]).numpy()
            answers[f"{pairing}_U"] = torch.stack([each.U for each in composed]).numpy()
            answers[f"{pairing}_V"] = torch.stack([each.V for each in composed]).numpy()
    np.savez(out, **answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
