"""TransformerLens 4.3.0 as an oracle, in an environment of its own: it brings more than a gigabyte of dependencies.

Outside, in headspan's environment: `environment` makes the other one (once, in `.venv-transformer-lens`),
`write_complete_gpt2` writes a folder that TransformerLens can load, and `answers` runs this very file over there.
Inside, as a script: read the folder, write every score to an .npz. Neither half needs the network once both exist.

What TransformerLens does, found in its source:

- `HookedTransformer` is gone since 4.0. `TransformerBridge.boot_transformers(folder)` loads a local folder, offline and
  without tokenizer files; weights stay as stored (no folding, no centring) until `enable_compatibility_mode`.
- `tools.analysis.attention_head_subspace_affinity(bridge, target_role=...)` has the source role O only; K and V keep
  their kv heads; bases come from one SVD per head; all pairs are computed, those outside `valid_mask` become 0.
- `bridge.all_composition_scores(mode)` repeats kv heads to query heads and scores all pairs in one broadcast product
  (some 8.5 GB for GPT-2 in float32, twice that in float64); pairs that do not compose become 0. Parameters require
  gradients, so `no_grad` is wanted around it.
- Axes are [source layer, source head, target layer, target head], as ours. Zero means both "orthogonal" and
  "does not apply"; ours has NaN for the latter.

The kernel is asked for in float64. In its default float32 it is off by 1.002e-5 at worst for GPT-2, its own rounding:
in float64 it agrees with ours to 1e-12.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-transformer-lens"
# A newer torch would bring gigabytes of CUDA; constraints.txt pins it too, this says why it must stay pinned.
REQUIREMENTS = ("transformer_lens==4.3.0", "torch==2.13.0")
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "disabled",
}


class NoOracle(Exception):
    """The environment could not be made, most likely for want of a network."""


def environment(extra: Sequence[str] = ()) -> Path:
    """The other environment's Python; made on first use, and again when the requirements or constraints change.

    Only one process makes it: two installations into one folder at once leave neither whole.
    """
    with FileLock(f"{FOLDER}.lock"):
        return _made(sorted({*REQUIREMENTS, *extra}))


def _made(wanted: Sequence[str]) -> Path:
    constraints = ROOT / "constraints.txt"
    python, marker = FOLDER / "bin" / "python", FOLDER / "installed.json"
    have = json.loads(marker.read_text()) if marker.is_file() else {}
    current = have.get("constraints") == constraints.read_text()
    if current and set(wanted) <= set(have["requirements"]):
        return python
    if not python.exists():
        venv.create(FOLDER, with_pip=True, clear=FOLDER.exists())
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
    wanted = sorted({*wanted, *have.get("requirements", ())})
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise NoOracle(f"pip could not install {' '.join(wanted)} into {FOLDER.name}: {' '.join(last)}")
    marker.write_text(json.dumps({"requirements": wanted, "constraints": constraints.read_text()}))
    return python


def write_complete_gpt2(attention: Path, folder: Path) -> Path:
    """A whole GPT-2 small: attention, LayerNorms and positions of `attention`, everything else small and random."""
    import torch
    from safetensors.torch import load_file, save_file

    config = json.loads((attention / "config.json").read_text())
    d, tensors = config["n_embd"], load_file(attention / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (config["vocab_size"], d)}
    for layer in range(config["n_layer"]):
        shapes |= {f"h.{layer}.mlp.c_fc.weight": (d, 4 * d), f"h.{layer}.mlp.c_fc.bias": (4 * d,)}
        shapes |= {f"h.{layer}.mlp.c_proj.weight": (4 * d, d), f"h.{layer}.mlp.c_proj.bias": (d,)}
    tensors |= {name: 0.02 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(attention / "config.json", folder / "config.json")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def run_there(arguments: Sequence[str], extra: Sequence[str] = (), **variables: str) -> str:
    """What the other environment's Python prints when run on `arguments`, without network."""
    done = subprocess.run(
        [str(environment(extra)), *arguments],
        env={**os.environ, **OFFLINE, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the oracle ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def answers(model: Path, out: Path) -> Path:
    """TransformerLens' scores of a model folder as an .npz: see `main`."""
    run_there([str(Path(__file__)), str(model), str(out)])
    return out


def main(model: str, out: str) -> None:
    """Write `kernel_X`, `valid_X` (float64) and `composition_X` for X in Q, K, V, and `chance`: mean and variance."""
    import numpy as np
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.tools.analysis import attention_head_subspace_affinity, random_projection_kernel_moments

    found = {}
    bridge = TransformerBridge.boot_transformers(model, device="cpu", dtype=torch.float64)
    for role in "QKV":
        affinity = attention_head_subspace_affinity(bridge, target_role=role)
        found[f"kernel_{role}"] = affinity.scores.numpy()
        found[f"valid_{role}"] = affinity.valid_mask.numpy()
    chance = random_projection_kernel_moments(bridge.cfg.d_model, affinity.source_rank)
    found["chance"] = np.array([chance.mean, chance.variance])
    bridge = TransformerBridge.boot_transformers(model, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        for role in "QKV":
            found[f"composition_{role}"] = bridge.all_composition_scores(role).scores.numpy()
    np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
