"""Against TransformerLens 4.3.0: kernels and composition scores of GPT-2's 144 heads, float32.

Both run in TransformerLens' own environment (see `tests.golden.transformer_lens_oracle`), with headspan on the path:

- speed, both in one process and in turns, for one thread and for two: `attention_head_subspace_affinity` against bases
  and kernel of the composing pairs; `all_composition_scores` against factors, overlaps and norms (`benchmarks.affinity`).
  Their weights are in memory; ours too for the kernel, while the composition scores read the file anew each time.
- memory of the composition scores, each in a process of its own: peak resident memory during the call, less what was
  resident before it. Ours computes OQ, OK and OV in one go and reads the weights; theirs is one call, weights loaded.

Their calls stand under `no_grad`, without which they would be slower and larger.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.affinity import composition, costs, kernels, layer_of_each, one_product, weights_of
from benchmarks.measure import models_folder
from tests.golden import transformer_lens_oracle as oracle

EXTRA = ("h5netcdf", "jaxtyping", "networkx", "pandas", "pyyaml", "safetensors", "scikit-learn", "scipy", "xarray")
KERNEL_ROUNDS, COMPOSITION_ROUNDS = 5, 3


def main() -> None:
    """Print every figure with its target."""
    attention = models_folder() / "gpt2-attention"
    if not attention.is_dir():
        print(f"GPT-2 attention is not at {attention}: set HEADSPAN_MODELS")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = str(oracle.write_complete_gpt2(attention, Path(name) / "gpt2"))
        try:
            for threads in (1, 2):
                print(_inside("speed", folder, threads), end="", flush=True)
            theirs, ours = (float(_inside(f"memory-{whose}", folder, 1)) for whose in ("theirs", "ours"))
        except oracle.NoOracle as reason:
            print(reason)
            return
    print(
        f"composition scores, peak memory: one call of theirs {theirs / 1e9:.2f} GB, all three of ours "
        f"{ours / 1e9:.2f} GB: {theirs / ours:.1f} times leaner (target >= 10)"
    )


def _inside(what: str, folder: str, threads: int) -> str:
    path = os.pathsep.join((str(oracle.ROOT / "src"), str(oracle.ROOT)))
    arguments = ["-m", "benchmarks.transformer_lens_speed", what, folder, str(threads)]
    return oracle.run_there(arguments, EXTRA, PYTHONPATH=path, OMP_NUM_THREADS=str(threads))


def _bridge(folder: str) -> Any:
    from transformer_lens.model_bridge import TransformerBridge

    return TransformerBridge.boot_transformers(folder, device="cpu")


def _print_speed(folder: str) -> None:
    """Inside: every ratio, and that both found the same."""
    from transformer_lens.tools.analysis import attention_head_subspace_affinity

    import headspan

    bridge, heads = _bridge(folder), headspan.open(folder).heads().to("float32")
    weights, layer = weights_of(heads), layer_of_each(heads)
    print(f"threads: {torch.get_num_threads()}, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")

    def their_kernels(roles: str) -> list[torch.Tensor]:
        return [attention_head_subspace_affinity(bridge, target_role=role).scores for role in roles]

    def their_scores(roles: str) -> list[torch.Tensor]:
        return [bridge.all_composition_scores(role).scores for role in roles]

    _require_same("kernel", their_kernels("QKV"), kernels(weights, layer, "QKV"), 1e-4)
    found = costs(
        {
            "peak": one_product(),
            "their one": lambda: their_kernels("Q"),
            "one": lambda: kernels(weights, layer, "Q"),
            "their three": lambda: their_kernels("QKV"),
            "three": lambda: kernels(weights, layer, "QKV"),
        },
        KERNEL_ROUNDS,
    )
    for label, ours, target in (("one pairing", "one", 5), ("OQ, OK and OV", "three", 8)):
        theirs = found[f"their {ours}"]
        print(f"kernel, {label}: theirs {theirs}, ours {found[ours]}: {theirs.over(found[ours])} (target >= {target})")
    _require_same("composition score", their_scores("QKV"), composition(heads, layer), 1e-5)
    actions: dict[str, Callable[[], object]] = {
        "their one": lambda: their_scores("Q"),
        "one": lambda: composition(heads, layer, "Q"),
        "their three": lambda: their_scores("QKV"),
        "three": lambda: composition(heads, layer),
    }
    found = costs(actions, COMPOSITION_ROUNDS, warm_up=False)
    for label, ours in (("one mode", "one"), ("OQ, OK and OV", "three")):
        theirs = found[f"their {ours}"]
        print(f"composition, {label}: theirs {theirs}, ours {found[ours]}: {theirs.over(found[ours])} (target >= 25)")


def _require_same(name: str, theirs: list[torch.Tensor], ours: torch.Tensor, tolerance: float) -> None:
    """Two times compare only if the results do."""
    table = torch.cat([scores.flatten(0, 1).flatten(1) for scores in theirs], dim=1)
    difference = float((table - ours)[~ours.isnan()].abs().max())
    if difference > tolerance:
        raise RuntimeError(f"the {name}s differ by {difference:.2g}")
    print(f"{name}: largest difference {difference:.1e} in float32")


def _print_memory(action: Callable[[], object]) -> None:
    """Inside: bytes that the action adds to the resident memory at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
    before = _status("VmRSS")
    action()
    print(_status("VmHWM") - before)


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


@torch.no_grad()
def _inside_main(what: str, folder: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    if what == "speed":
        _print_speed(folder)
    elif what == "memory-theirs":
        bridge = _bridge(folder)
        _print_memory(lambda: bridge.all_composition_scores("Q"))
    else:
        import headspan

        heads = headspan.open(folder).heads().to("float32")
        _print_memory(lambda: composition(heads, layer_of_each(heads)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _inside_main(*sys.argv[1:])
    else:
        main()
