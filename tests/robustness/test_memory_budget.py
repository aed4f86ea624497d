"""A memory budget is kept: the peak of a process that runs one lens over a model larger than its budget."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import headspan
from headspan.errors import MemoryBudgetError
from headspan.lenses.catalog import lens as lens_of
from headspan.lenses.catalog import lenses

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
    "drift": (DEEP | {"num_attention_heads": 64}, {"draws": 3}),
    "affinity of both scores": (DEEP, {"draws": 10, "pairings": "OV"}),
    "channels": (BROAD, {"pairings": "OK", "null": "haar"}),
    "channels of candidates": (BROAD, {"algorithm": "candidates"}),
    "wiring": (WIDE, {}),
    "wiring of many heads": (DEEP, {}),
    "vocabulary": (WIDE | {"num_hidden_layers": 3, "intermediate_size": 8192, "vocab_size": 20_000}, {"draws": 50}),
}
PROGRAM = """
    import inspect, json, sys
    import scipy.stats, sklearn.manifold
    import headspan
    from headspan.heads.memory import working_memory
    from headspan.lenses.catalog import lens

    name, options, shape, budget = sys.argv[1], *map(json.loads, sys.argv[2:])
    subjects = [headspan.synthetic(shape, seed=seed) for seed in range(lens(name).subjects)]
    if "memory" in inspect.signature(lens(name).function).parameters:
        options["memory"] = working_memory(budget)
    result = lens(name).function(*subjects, **options)
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


def test_every_lens_has_a_budget_or_a_reason_to_have_none() -> None:
    """Lenses that run a model hold all of it, as `transformers` does; drift reads two layers at a time, and no more."""
    without = {name for name, one in lenses().items() if "memory" not in inspect.signature(one.function).parameters}
    running = {"attention", "detect", "intervene", "validate", "gaussian", "mixing"}
    assert without == running | {"drift"}


def test_random_changes_of_all_heads_that_a_budget_cannot_hold_are_left_out_and_said_so() -> None:
    first, second = (headspan.synthetic("tiny", seed=seed) for seed in range(2))
    held = headspan.compare(first, second, draws=3)
    result = headspan.compare(first, second, draws=3, memory="8MB")
    reason = result.attrs["change_null"]
    assert re.fullmatch(r"left out: [\d,]+ bytes needed, and the memory budget is [\d,]+", reason)
    assert bool(result["wiring/OK"]["change_z"].isnull().all())
    np.testing.assert_allclose(result["wiring/OK"]["kernel_after"], held["wiring/OK"]["kernel_after"], rtol=1e-9)
    assert bool(held["wiring/OK"]["change_z"].notnull().any())
