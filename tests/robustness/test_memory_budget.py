"""A memory budget is kept: the peak of a process that runs one lens over a model larger than its budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

SHAPE = {
    "model_type": "llama",
    "num_hidden_layers": 36,
    "num_attention_heads": 8,
    "hidden_size": 1024,
    "intermediate_size": 256,
    "vocab_size": 512,
}
WHOLE = 36 * 4 * 1024**2 * 8
"""Bytes of the attention in double precision, which these lenses compute in."""
BUDGET = 900 * 10**6
OPTIONS = {
    "ranks": {},
    "affinity": {"metrics": ["pk"], "draws": 10},
    "affinity of both scores": {"draws": 10, "pairings": "OV"},
}
PROGRAM = """
    import json, sys
    import scipy.stats, sklearn.manifold
    import headspan
    from headspan.heads.memory import working_memory
    from headspan.lenses import lens
    from importlib import import_module

    name, options, shape, budget = sys.argv[1], *map(json.loads, sys.argv[2:])
    import_module(f"headspan.lenses.{name}")
    result = lens(name).compute(headspan.synthetic(shape).heads(), memory=working_memory(budget), **options)
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    peak, scratch = 1024 * int(status["VmHWM"].split()[0]), result.attrs.get("scratch_bytes", 0)
    print(json.dumps({"peak": peak, "scratch": int(scratch)}))
    """


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("case", OPTIONS)
def test_a_lens_keeps_to_its_budget_on_a_model_larger_than_it(case: str) -> None:
    arguments = [case.split()[0], json.dumps(OPTIONS[case]), json.dumps(SHAPE), json.dumps(BUDGET)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert WHOLE > BUDGET
    assert found["peak"] <= BUDGET, f"{case}: peak {found['peak']:,} of {BUDGET:,}"
    if case.startswith("affinity"):
        assert found["scratch"] > 0
