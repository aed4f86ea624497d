"""Against TransformerLens 4.3.0: kernels and composition scores of GPT-2's 144 heads, float32.

Both run in TransformerLens' own environment (see `tests.golden.transformer_lens_oracle`), with headspan on the path:

- speed, both in one process and in turns, for one thread and for two: `attention_head_subspace_affinity` against bases
  and kernel of the composing pairs, `all_composition_scores` against factors, overlaps and norms, both as in
  `benchmarks.affinity`. Theirs is one call per pairing; three are the sum of three. Their weights are in memory; ours
  too for the kernel, while the composition scores read the file anew each time.
- memory of both scores, each in a process of its own: peak resident memory during the call, less what was resident
  before it. Ours computes OQ, OK and OV in one go and reads the weights; theirs is one call, weights loaded.

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

from benchmarks.affinity import Cost, composition, costs, kernels, weights_of
from benchmarks.measure import models_folder
from tests.golden import transformer_lens_oracle as oracle

EXTRA = ("jaxtyping", "netCDF4", "networkx", "pandas", "pyyaml", "safetensors", "scikit-learn", "scipy", "xarray")
TOLERANCE = 1e-4
KERNEL_ROUNDS, COMPOSITION_ROUNDS = 7, 2


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
            memory = {
                score: [float(_inside(f"memory-{whose}-{score}", folder, 1)) for whose in ("theirs", "ours")]
                for score in ("composition", "kernel")
            }
        except oracle.NoOracle as reason:
            print(reason)
            return
    for score, (theirs, ours) in memory.items():
        print(
            f"{score}, peak memory: one call of theirs {theirs / 1e9:.2f} GB, all three of ours {ours / 1e9:.2f} GB: "
            f"{theirs / ours:.1f} times leaner" + (" (target >= 10)" if score == "composition" else "")
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
    weights = weights_of(heads)
    print(f"threads: {torch.get_num_threads()}, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    _compare(
        "kernel",
        lambda role: attention_head_subspace_affinity(bridge, target_role=role).scores,
        lambda roles: kernels(heads, weights, roles),
        KERNEL_ROUNDS,
        targets=(5, 8),
    )
    _compare(
        "composition score",
        lambda role: bridge.all_composition_scores(role).scores,
        lambda roles: composition(heads, roles),
        COMPOSITION_ROUNDS,
        targets=(25, 25),
    )


def _compare(
    name: str,
    theirs: Callable[[str], torch.Tensor],
    ours: Callable[[str], torch.Tensor],
    rounds: int,
    targets: tuple[int, int],
) -> None:
    results: dict[str, torch.Tensor] = {}

    def kept(key: str, score: Callable[[str], torch.Tensor], roles: str) -> Callable[[], object]:
        return lambda: results.update({key: score(roles)})

    actions = {f"their {role}": kept(f"their {role}", theirs, role) for role in "QKV"}
    found = costs({**actions, "one": kept("one", ours, "Q"), "three": kept("three", ours, "QKV")}, rounds)
    # Two times compare only if the results do.
    table = torch.cat([results[f"their {role}"].flatten(0, 1).flatten(1) for role in "QKV"], dim=1)
    difference = float((table - results["three"])[~results["three"].isnan()].abs().max())
    print(f"{name}: largest difference {difference:.1e} in float32")
    if difference > TOLERANCE:
        raise RuntimeError(f"the {name}s differ by {difference:.2g}")
    calls = [found[f"their {role}"] for role in "QKV"]
    together = Cost(sum(call.wall for call in calls), sum(call.cpu for call in calls))
    for label, call, cost, target in (
        ("one pairing", calls[0], found["one"], targets[0]),
        ("OQ, OK and OV", together, found["three"], targets[1]),
    ):
        print(f"{name}, {label}: theirs {call}, ours {cost}: {call.over(cost)} faster (target >= {target}x)")


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
    else:
        _, whose, score = what.split("-")
        _print_memory(_their_call(folder, score) if whose == "theirs" else _our_call(folder, score))


def _their_call(folder: str, score: str) -> Callable[[], object]:
    bridge = _bridge(folder)
    if score == "composition":
        return lambda: bridge.all_composition_scores("Q")
    from transformer_lens.tools.analysis import attention_head_subspace_affinity

    return lambda: attention_head_subspace_affinity(bridge, target_role="Q")


def _our_call(folder: str, score: str) -> Callable[[], object]:
    import headspan

    heads = headspan.open(folder).heads().to("float32")
    return lambda: composition(heads) if score == "composition" else kernels(heads, weights_of(heads), "QKV")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _inside_main(*sys.argv[1:])
    else:
        main()
