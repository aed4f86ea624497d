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
from headspan.cli.lens_commands import lens_command
from headspan.errors import MemoryBudgetError
from headspan.lenses.catalog import lens as lens_of
from headspan.lenses.catalog import lenses
from headspan.result import Lens
from headspan.runtime import budget

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
    "compare": (DEEP | {"num_hidden_layers": 14}, {"draws": 3}),
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
    assert lens_of(case.split()[0]).subjects * whole(shape) > BUDGET
    assert found["peak"] <= BUDGET, f"{case}: peak {found['peak']:,} of {BUDGET:,}"
    if case.startswith(("affinity", "similarity")):
        assert found["scratch"] > 0


RUNNING: dict[str, list[str]] = {
    "attention": ["attention"],
    "attention on a long prompt": ["attention", "--tokens", ",".join(map(str, range(1, 400)))],
    "attention on a prompt that is too long": ["attention", "--tokens", ",".join(map(str, range(1, 1500)))],
    "detect": ["detect"],
    "detect in large batches": ["detect", "--length", "200", "--batch", "16", "--seeds", "2"],
    "intervene": ["intervene", "--length", "4"],
    "gaussian": ["gaussian"],
    "gaussian with many sequences": ["gaussian", "--sequences", "512"],
    "mixing": ["mixing"],
    "mixing with many sequences": ["mixing", "--sequences", "64", "--draws", "2"],
    "validate": ["validate", "--count", "2", "--length", "16", "--strong", "1", "--random", "2", "--group", "2"],
}
"""Command lines of lenses that run a model. Names that speak of size are refused or done, within the budget."""


@pytest.fixture(scope="module")
def random_llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of 44 MB."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("llama")
    shape = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 8}
    LlamaForCausalLM(LlamaConfig(**shape, vocab_size=8000, max_position_embeddings=4096)).save_pretrained(folder)
    return str(folder)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from the system")
@pytest.mark.parametrize("case", RUNNING)
def test_a_lens_that_runs_a_model_keeps_to_its_budget_or_says_what_it_needs(case: str, random_llama: str) -> None:
    command, *options = RUNNING[case]
    code, peak, said = run_command([command, random_llama, "--memory", "1GB", *options])
    assert peak <= 10**9, f"{case}: peak {peak:,}"
    if code != 0:
        assert len(case.split()) > 1, said
        assert re.search(
            r"needs about [\d,]+ bytes beside the [\d,]+ .* the memory budget is 1,000,000,000; .*raise it to", said
        )


def run_command(arguments: list[str]) -> tuple[int, int, str]:
    """Exit code, peak in bytes and standard error of a command, in a process whose children are these alone."""
    program = (
        "import json, resource, subprocess, sys\n"
        "done = subprocess.run([sys.executable, '-m', 'headspan', *sys.argv[1:]], capture_output=True, text=True)\n"
        "peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n"
        "print(json.dumps([done.returncode, peak, done.stderr]))"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-c", program, *arguments]
    code, peak, said = json.loads(subprocess.run(line, env=env, capture_output=True, text=True, check=True).stdout)
    return code, peak, said


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded() -> None:
    message = r"'demo' as a running model needs about [\d,]+ bytes .* is 1,000,000; raise it to [\d,]+ or more"
    with pytest.raises(MemoryBudgetError, match=message):
        headspan.attention("demo", memory="1MB")


def test_a_run_that_this_machine_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = headspan.open("demo")
    headspan.attention(model, "abc", permutations=0)
    monkeypatch.setattr(budget, "machine_memory", lambda: budget.resident_bytes())
    message = r"a run of 1 x 3 tokens needs .* this machine has [\d,]+; ask for fewer .*, or use one that has more"
    with pytest.raises(MemoryBudgetError, match=message):
        headspan.attention(model, "abc", permutations=0)


def test_a_budget_changes_no_number() -> None:
    plain, held = (headspan.detect("demo", seeds=2, memory=memory) for memory in (None, "8GB"))
    np.testing.assert_array_equal(plain["induction"], held["induction"])
    np.testing.assert_array_equal(plain["identity_weights"], held["identity_weights"])


def whole(shape: dict[str, object]) -> int:
    """Bytes of all weights in double precision."""
    return 8 * sum(math.prod(info.shape) for info in headspan.synthetic(shape).store.infos.values())


@pytest.mark.parametrize(
    ("lens", "memory", "message"),
    [
        ("positions", "3MB", "W_E takes .* raise the budget by"),
        ("positions", "6MB", "directions in 512 dimensions need .* raise the memory budget"),
        ("spectra", "3MB", "W_E takes .* raise the budget by"),
        ("similarity", "1MB", "the spaces of one layer need .* raise the memory budget"),
        ("vocabulary", "6MB", "token tables take .* heads of one layer .* raise it by"),
        ("channels", "1MB", "senders of one layer take .* raise it"),
    ],
)
def test_what_a_budget_cannot_hold_is_refused_by_its_size(lens: str, memory: str, message: str) -> None:
    shape = DEEP | {"num_hidden_layers": 2, "hidden_size": 512, "vocab_size": 1024}
    options = {"matrices": "W_E"} if lens == "spectra" else {}
    with pytest.raises(MemoryBudgetError, match=message):
        lens_of(lens).function(headspan.synthetic(shape), memory=memory, **options)


def test_every_lens_has_a_budget_on_the_command_line() -> None:
    """Lenses that run a model hold all of it and drift a layer: they refuse where others cut their work to fit."""
    names = {name: signature_of(one).parameters for name, one in lenses().items()}
    assert all("memory" in parameters for parameters in names.values())
    refusing = {name for name, one in lenses().items() if "memory" not in inspect.signature(one.function).parameters}
    assert refusing == {"attention", "detect", "intervene", "validate", "gaussian", "mixing", "drift"}


def signature_of(one: Lens) -> inspect.Signature:
    return inspect.signature(lens_command(one))


def test_random_changes_of_all_heads_that_a_budget_cannot_hold_are_left_out_and_said_so() -> None:
    first, second = (headspan.synthetic("tiny", seed=seed) for seed in range(2))
    held = headspan.compare(first, second, draws=3)
    result = headspan.compare(first, second, draws=3, memory="8MB")
    reason = result.attrs["change_null"]
    assert re.fullmatch(r"left out: [\d,]+ bytes needed, and the memory budget is [\d,]+", reason)
    assert bool(result["wiring/OK"]["change_z"].isnull().all())
    np.testing.assert_allclose(result["wiring/OK"]["kernel_after"], held["wiring/OK"]["kernel_after"], rtol=1e-9)
    assert bool(held["wiring/OK"]["change_z"].notnull().any())
