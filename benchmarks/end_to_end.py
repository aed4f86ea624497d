"""What a user waits for, from a file on disk to the answer: one process each, everything from the import on.

1. The table of the strongest pairs of GPT-2's attention: headspan, against a script for TransformerLens 4.3.0 that
   loads, computes the projection kernel of output to query, key and value, and ranks.
2. A table of the spectra of all 48 attention matrices: headspan, against WeightWatcher 0.7.7's `analyze`.
3. One attention view as an HTML file: headspan, against a script for BertViz 1.4.1, both on the demo model.

Every script runs as its own process, in its tool's environment, on one thread, in turns; the least of `ROUNDS` is
taken, as processor time (the machine may be busy) and as peak memory. TransformerLens and BertViz read a complete
checkpoint; GPT-2's is completed by zeros for what is not attention.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import spectra
from benchmarks.measure import models_folder
from tests.golden import transformer_lens_oracle as oracle

ROUNDS = 3
MARGIN = 1.0
"""headspan is to take no more than the other script."""

PAIRS_OURS = "import headspan as hs; print(hs.affinity({folder!r}, metrics='pk').top(20))"
PAIRS_THEIRS = """
import torch
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.tools.analysis import attention_head_subspace_affinity
bridge = TransformerBridge.boot_transformers({folder!r}, device="cpu")
rows = []
with torch.no_grad():
    for role in "QKV":
        scores = attention_head_subspace_affinity(bridge, target_role=role).scores
        for value, place in zip(*scores.flatten().topk(20)):
            rows.append((float(value), role, [int(i) for i in torch.unravel_index(place, scores.shape)]))
for row in sorted(rows, reverse=True)[:20]:
    print(row)
"""
SPECTRA_OURS = "import headspan as hs; print(hs.spectra({folder!r}, matrices='W_Q,W_K,W_V,W_O').table())"
SPECTRA_THEIRS = """
import logging
import torch, weightwatcher
from safetensors.torch import load_file
from pathlib import Path
layers = []
for name, W in load_file(next(Path({folder!r}).glob("*.safetensors"))).items():
    if W.ndim == 2 and "attn.c_" in name:
        for part in W.float().split(W.shape[0], dim=1):
            layer = torch.nn.Linear(*part.shape, bias=False)
            layer.weight.data.copy_(part.T)
            layers.append(layer)
watcher = weightwatcher.WeightWatcher(model=torch.nn.Sequential(*layers), log_level=logging.ERROR)
print(watcher.analyze(min_evals=0))
"""
TOKENS = [1, 5, 7, 9, 11, 13, 1, 5, 7, 9, 11, 13]
VIEW_OURS = f"import headspan as hs; hs.attention('demo', {TOKENS}).save('view.html')"
VIEW_THEIRS = f"""
from importlib.util import find_spec
from pathlib import Path
import torch
from bertviz import head_view
from transformers import AutoModelForCausalLM
folder = Path(find_spec("headspan").origin).parent / "demo" / "checkpoint"
model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
with torch.no_grad():
    attention = model(torch.tensor([{TOKENS}]), output_attentions=True).attentions
view = head_view(attention, [str(token) for token in {TOKENS}], html_action="return")
Path("view.html").write_text(view.data)
"""

PROBE = """
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]))
"""


def cost(python: str, program: str, scratch: str) -> tuple[float, int]:
    """Processor time in seconds and peak memory in bytes of one process that runs the program."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **oracle.OFFLINE, **limits}
    command = [sys.executable, "-c", PROBE, python, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=scratch)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def compare(name: str, ours: str, theirs: str, other: tuple[str, str], scratch: str) -> None:
    """Print one line: both costs, and their ratios."""
    tool, python = other
    mine, yours = [], []
    for _ in range(ROUNDS):
        yours.append(cost(python, theirs, scratch))
        mine.append(cost(sys.executable, ours, scratch))
    (a, b), (c, d) = ([min(values) for values in zip(*all_of, strict=True)] for all_of in (mine, yours))
    verdict = "met" if a <= MARGIN * c else "MISSED"
    print(
        f"{name}: headspan {a:.1f} s, {b / 1e9:.2f} GB; {tool} {c:.1f} s, {d / 1e9:.2f} GB "
        f"(processor time, peak memory; {c / a:.1f} times faster, target 1: {verdict}; {d / b:.1f} times leaner)"
    )


def main() -> None:
    """Print every comparison whose tool is at hand."""
    attention = models_folder() / "gpt2-attention"
    if not attention.is_dir():
        print(f"GPT-2 attention is not at {attention}: set HEADSPAN_MODELS")
        return
    print(f"one thread each, least of {ROUNDS}; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(attention)
        try:
            whole = str(oracle.write_complete_gpt2(attention, Path(scratch) / "gpt2"))
            theirs = ("TransformerLens", str(oracle.environment()))
            compare(
                "strongest pairs", PAIRS_OURS.format(folder=whole), PAIRS_THEIRS.format(folder=whole), theirs, scratch
            )
        except oracle.NoOracle as reason:
            print(reason)
        try:
            theirs = ("WeightWatcher", str(spectra._environment()))
            ours = SPECTRA_OURS.format(folder=folder)
            compare("spectra", ours, SPECTRA_THEIRS.format(folder=folder), theirs, scratch)
        except OSError as reason:
            print(reason)
        try:
            compare(
                "attention view", VIEW_OURS, VIEW_THEIRS, (f"BertViz {version('bertviz')}", sys.executable), scratch
            )
        except PackageNotFoundError:
            print("BertViz is not installed here (pip install --no-deps bertviz==1.4.1)")


if __name__ == "__main__":
    main()
