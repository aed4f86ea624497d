"""A memory budget is kept: the peak of a process that runs one lens over a model larger than its budget."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap

import pytest

import headspan
from headspan.errors import MemoryBudgetError
from headspan.lenses.catalog import lens as lens_of

DEEP = {
    "model_type": "llama",
    "num_hidden_layers": 36,
    "num_attention_heads": 8,
    "hidden_size": 1024,
    "intermediate_size": 256,
    "vocab_size": 512,
}
"""Much attention: 1.2 GB in double precision, which these lenses compute in."""
WIDE = DEEP | {"num_hidden_layers": 2, "intermediate_size": 16_384, "vocab_size": 40_000}
"""Large matrices around it: 1.2 GB too."""
BROAD = DEEP | {"num_hidden_layers": 9, "num_attention_heads": 16, "hidden_size": 2048}
"""As much attention in fewer layers."""
BUDGET = 900 * 10**6
CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "ranks": (DEEP, {}),
    "spectra": (WIDE, {}),
    "positions": (WIDE, {}),
    "similarity": (DEEP, {"space": "qk", "qk_rank": 40, "maps": False}),
    "affinity": (DEEP, {"metrics": ["pk"], "draws": 10}),
    "affinity of both scores": (DEEP, {"draws": 10, "pairings": "OV"}),
    "channels": (BROAD, {"pairings": "OK", "null": "haar"}),
    "vocabulary": (WIDE | {"num_hidden_layers": 3, "intermediate_size": 8192, "vocab_size": 20_000}, {"draws": 50}),
}
PROGRAM = """
    import json, sys
    import scipy.stats, sklearn.manifold
    import headspan
    from headspan.heads.memory import working_memory
    from headspan.lenses.catalog import lens

    name, options, shape, budget = sys.argv[1], *map(json.loads, sys.argv[2:])
    result = lens(name).function(headspan.synthetic(shape), memory=working_memory(budget), **options)
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    peak, scratch = 1024 * int(status["VmHWM"].split()[0]), result.attrs.get("scratch_bytes", 0)
    print(json.dumps({"peak": peak, "scratch": int(scratch)}))
    """


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("case", CASES)
def test_a_lens_keeps_to_its_budget_on_a_model_larger_than_it(case: str) -> None:
    shape, options = CASES[case]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), case.split()[0], *map(json.dumps, (options, shape, BUDGET))],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert whole(shape) > BUDGET
    assert found["peak"] <= BUDGET, f"{case}: peak {found['peak']:,} of {BUDGET:,}"
    if case.startswith(("affinity", "similarity")):
        assert found["scratch"] > 0


def whole(shape: dict[str, object]) -> int:
    """Bytes of all weights in double precision."""
    return 8 * sum(math.prod(info.shape) for info in headspan.synthetic(shape).store.infos.values())


@pytest.mark.parametrize(
    ("lens", "budget", "message"),
    [
        ("positions", "3MB", "W_E takes .* raise the budget by"),
        ("positions", "6MB", "directions in 512 dimensions need .* raise the memory budget"),
        ("spectra", "3MB", "W_E takes .* raise the budget by"),
        ("similarity", "1MB", "the spaces of one layer need .* raise the memory budget"),
        ("vocabulary", "6MB", "token tables take .* heads of one layer .* raise it by"),
        ("channels", "1MB", "senders of one layer take .* raise it"),
    ],
)
def test_what_a_budget_cannot_hold_is_refused_by_its_size(lens: str, budget: str, message: str) -> None:
    shape = DEEP | {"num_hidden_layers": 2, "hidden_size": 512, "vocab_size": 1024}
    options = {"matrices": "W_E"} if lens == "spectra" else {}
    with pytest.raises(MemoryBudgetError, match=message):
        lens_of(lens).function(headspan.synthetic(shape), memory=budget, **options)
