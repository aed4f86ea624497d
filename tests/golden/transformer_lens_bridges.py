"""Models wrapped by TransformerLens and nnsight, opened by headspan; run as a script where both are installed.

Reads the folder of a model, wraps it as a bridge, and compares what headspan hands out with the bridge's properties,
before and after its compatibility mode; then the same weights through nnsight. Prints one line per comparison: what,
which weight, largest difference (NaN where shapes differ), family.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any


def differences(wrapped: Any, bridge: Any, label: str) -> list[str]:
    """Lines about the weights of a wrapped model, held against a bridge's properties."""
    from headspan.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(wrapped)
    heads = checkpoint.heads()
    lines = []
    for name in ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U"):
        ours, theirs = getattr(heads, name), getattr(bridge, name).detach()
        worst = float((ours - theirs).abs().max()) if ours.shape == theirs.shape else float("nan")
        lines.append(f"{label} {name} {worst} {checkpoint.family}")
    return lines


def main(folder: str) -> None:
    warnings.simplefilter("ignore")
    from nnsight import NNsight
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoModelForCausalLM

    bridge = TransformerBridge.boot_transformers(folder)
    lines = differences(bridge, bridge, "bridge")
    lines += differences(NNsight(AutoModelForCausalLM.from_pretrained(folder)), bridge, "nnsight")
    bridge.enable_compatibility_mode()
    lines += differences(bridge, bridge, "processed")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
    main(sys.argv[1])
