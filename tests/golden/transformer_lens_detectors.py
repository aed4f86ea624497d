"""TransformerLens 4.3.0's head detector as an oracle, run in its own environment (see `transformer_lens_oracle`).

Inside, as a script: read a model folder and token ids, write for each of the three kinds of head that it knows its
"mul" score of every head: attention to the kind's positions over all attention, so the mean over all queries. Ours is
the mean over the queries that have such a position.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.golden import transformer_lens_oracle as oracle

NAMES = {
    "previous_token": "previous_token_head",
    "duplicate_token": "duplicate_token_head",
    "induction": "induction_head",
}


def answers(model: Path, tokens: list[int], out: Path) -> Path:
    """Scores of every head for one sequence, as an .npz with one array per kind of head."""
    oracle.run_there([str(Path(__file__)), str(model), json.dumps(tokens), str(out)], PYTHONPATH=str(oracle.ROOT))
    return out


def main(model: str, tokens: str, out: str) -> None:
    """Write `kind [layer, head]` for every kind in NAMES."""
    import numpy as np
    import torch
    from transformer_lens.head_detector import detect_head
    from transformer_lens.model_bridge import TransformerBridge

    ids = torch.tensor([json.loads(tokens)])
    bridge = TransformerBridge.boot_transformers(model, device="cpu", dtype=torch.float32)
    # The detector takes text; the sequences here are token ids, which need no tokenizer.
    bridge.to_tokens = lambda text: ids
    with torch.no_grad():
        found = {kind: detect_head(bridge, "ids", name).numpy() for kind, name in NAMES.items()}
    np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
