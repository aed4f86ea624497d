"""Models wrapped by TransformerLens and nnsight, opened by headspan; run as a script where both are installed.

Reads the folder of a model, wraps it as a bridge, and compares what headspan hands out with the bridge's properties,
before and after its compatibility mode; then the same weights through nnsight. Prints one line per comparison: what,
which weight, largest difference (NaN where shapes differ), family.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
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


def claims() -> list[str]:
    """What docs/comparison.md says of TransformerLens, tried: one line each, with 1 where it holds."""
    import torch
    import transformer_lens

    theirs = import_module("transformer_lens.tools.analysis.projection_kernel")  # the package has a function so named
    random = theirs.random_projection_kernel_moments
    first, second = (theirs.orthonormal_subspace(torch.randn(12, 3)) for _ in range(2))
    held = {
        "moments of equal ranks": abs(random(768, 64).mean - 64**2 / 768) < 1e-9,
        "one rank only": random.__code__.co_varnames[:2] == ("ambient_dim", "rank"),
        "no calibrated p-values": "not calibrated p-values" in (random.__doc__ or ""),
        "angles of a pair": theirs.projection_kernel(first, second).angles.shape == (3,),
        "no p-values": not any("p_value" in name or "fdr" in name for name in dir(theirs)),
        "SVDInterpreter": hasattr(transformer_lens, "SVDInterpreter"),
        "FactoredMatrix": hasattr(transformer_lens, "FactoredMatrix"),
    }
    return [f"claim {name.replace(' ', '_')} {float(not holds)} transformer_lens" for name, holds in held.items()]


def main(folder: str) -> None:
    warnings.simplefilter("ignore")
    from nnsight import NNsight
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoModelForCausalLM

    bridge = TransformerBridge.boot_transformers(folder)
    lines = differences(bridge, bridge, "bridge")
    lines += differences(NNsight(AutoModelForCausalLM.from_pretrained(folder)), bridge, "nnsight")
    bridge.enable_compatibility_mode()
    lines += differences(bridge, bridge, "processed") + claims()
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
    main(sys.argv[1])
