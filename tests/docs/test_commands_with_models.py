"""Commands on the pages that need more than the demo model: each runs on what it is about, or on the nearest thing.

Real models where they are at hand; a Hub on loopback with small models under the names of large ones; a tiny random
encoder-decoder; a run of the lab that has learned; a scheduler on this machine. Every case names the line as it stands
on the page, so that a changed line is a failing test in `test_commands.py`.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import headspan.demo
from headspan.cli.main import app
from tests.docs.pages import DOCS, run_page
from tests.families.tiny_models import CASES, Case
from tests.robustness.hub_server import HubServer
from tests.robustness.local_hub import hub_environment

pytestmark = pytest.mark.slow

DEMO = Path(headspan.demo.__file__).parent / "checkpoint"


@dataclass(frozen=True)
class Line:
    """A command of a page, what stands in it for the reader's models and settings, and what the answer has to say."""

    line: str
    put: dict[str, str]
    answer: str
    more: str = ""
    """Options added to it: small settings."""
    code: int = 0

    def arguments(self) -> list[str]:
        line = self.line.removeprefix("headspan ")
        for there, here in self.put.items():
            assert there in line, f"{there} is not in {line}"
            line = line.replace(there, here)
        return [*shlex.split(line), *shlex.split(self.more)]

    def run(self) -> str:
        done = CliRunner().invoke(app, self.arguments(), env={"COLUMNS": "200"})
        assert done.exit_code == self.code, done.output[-2000:]
        assert re.search(self.answer, " ".join(done.output.split())), done.output
        return done.output


REAL = {
    "headspan reproduce 2601.10266 --model GPT2": ("GPT2", "gpt2_attention", r"first hub by degree .* L4H7 L4H7 yes"),
    "headspan reproduce 000 --model GPT2 -o reproduced": ("GPT2", "gpt2_attention", "holds in part .* 640 dimensions"),
    'headspan reproduce 003 --model SmolLM2.gguf --only "Figure 8.6"': (
        "SmolLM2.gguf",
        "smollm2_file",
        r"Mean rank correlation \+0.053",
    ),
    "headspan inspect SmolLM2-135M-Instruct.Q4_1.gguf": (
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "smollm2_file",
        r"Layers 30 Heads per layer 9 .* Q4_1 \(4 bits, groups of 32\)",
    ),
    "headspan inspect ../shared/models/gpt2-attention": (
        "../shared/models/gpt2-attention",
        "gpt2_attention",
        "Missing W_E, W_U, MLP",
    ),
    "headspan report SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2.html": (
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "smollm2_file",
        "smollm2.html",
    ),
}
"""Lines about real models: the name in them, the fixture that puts a path there, and the answer."""
SMALL = {
    "headspan reproduce 000 --model GPT2 -o reproduced": "--only 'Figure 1'",
    "headspan report SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2.html": "--time-limit 1",
}
"""What keeps two of them short: one figure; a second for each analysis."""
STUDIES = (
    Line(
        "headspan train copying --preset smoke --seeds 0..3 -o runs --study lengths",
        {"0..3": "0..0"},
        "OOD accuracy by position scheme and sequence length .* sinusoidal",
        "--steps 40",
    ),
    Line(
        "headspan train copying --preset smoke --seeds 0..3 -o runs --set sharpness_every=0 --set save_every=100"
        " --study adapter",
        {"0..3": "0..0", "save_every=100": "save_every=20"},
        "A rank-2 adapter for sequences of 64 changes OOD accuracy",
        "--steps 40",
    ),
    Line("headspan compare runs/seed-0/model runs/seed-0/adapted", {}, "Heads that moved furthest"),
)
"""In order: the last compares what the one before it has trained."""
LEARNED = (
    Line(
        "headspan train copying --seeds 0..3 -o runs --study plateau --study sparsity",
        {"0..3": "0..0"},
        "100 % of 1 seeds.* From the plateau, .* Learned position directions live on",
        "--preset smoke --set lenses_every=0",
    ),
    Line(
        "headspan claims --document 004 --model lab=run/model",
        {"run/model": "runs/seed-0/model"},
        r"Claim S4\.6 .* check pass tried on lab .*6 claims",
        code=1,
    ),
    Line(
        "headspan reproduce 004 --model run/model -o reproduced",
        {"run/model": "runs/seed-0/model"},
        r"Question: saddle or minimum\? .* runs/seed-0/model .*Page written to reproduced/document-004.html",
    ),
)
"""In order: a run that learns, and what is asked of it. A model of `smoke` is too small for two claims, which fail."""
ON_THE_HUB = (
    Line("headspan inspect openai-community/gpt2", {}, "Model openai-community/gpt2 .* Size on the Hub"),
    Line(
        "headspan affinity EleutherAI/pythia-160m@step143000 --pairings OK",
        {},
        "OK, projection kernel: mean .* src dst score",
    ),
)
SWEPT = "headspan sweep 'EleutherAI/pythia-70m@{step0,step512,step1000}' -o store --lenses affinity,spectra,drift"
SCHEDULED = "headspan sweep models.yaml -o store --scheduler tcp://10.0.0.1:8786"
CROSS = "headspan wiring MODEL --stack cross --from heads,mlp --to K,V"

COVERED = {*REAL, *(one.line for one in (*STUDIES, *LEARNED, *ON_THE_HUB)), SWEPT, SCHEDULED, CROSS}
"""Lines of the pages that run here."""


@pytest.mark.parametrize("line", REAL)
def test_a_command_about_a_real_model_runs_on_it(
    line: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, fixture, answer = REAL[line]
    monkeypatch.chdir(tmp_path)
    stopped = 3 if "--time-limit" in SMALL.get(line, "") else 0  # the report is written, and says what was left out
    Line(line, {name: shlex.quote(str(request.getfixturevalue(fixture)))}, answer, SMALL.get(line, ""), stopped).run()
    written = re.search(r" -o (\S+)", line)
    assert written is None or (tmp_path / written[1]).exists()


@pytest.mark.parametrize("lines", [STUDIES, LEARNED], ids=["studies", "learned"])
def test_commands_about_a_run_of_the_lab_run_in_order(
    lines: tuple[Line, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place, line in enumerate(lines):
        if place and "train" in line.line:
            shutil.rmtree(tmp_path / "runs")
        line.run()


def saved(name: str, folder: Path, seed: int = 1, **settings: Any) -> Path:
    """A tiny random model of the tests of families, as a folder."""
    case = next(case for case in CASES if case.name == name)
    model = Case(name, case.model_type, {**case.settings, **settings}, case.kind).model(head=True, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def pythias(patient_hub: HubServer, tmp_path: Path) -> HubServer:
    """The Hub of the pages, with tiny models under its names and revisions."""
    patient_hub.add("openai-community/gpt2", saved("gpt2", tmp_path / "gpt2"))
    patient_hub.add(
        "EleutherAI/pythia-160m", saved("gpt_neox", tmp_path / "pythia-160m"), revisions=("main", "step143000")
    )
    for step in (0, 512, 1000):
        folder = saved("gpt_neox", tmp_path / f"pythia-70m-{step}", seed=step + 2)
        name, commit = f"EleutherAI/pythia-70m@step{step}", f"{step + 1:040x}"
        patient_hub.add(name, folder, revisions=(f"step{step}",), commit=commit)
    return patient_hub


@pytest.mark.parametrize("line", ON_THE_HUB, ids=lambda line: line.line)
def test_a_command_about_the_hub_reads_from_a_hub(line: Line, pythias: HubServer) -> None:
    line.run()
    assert any(line.arguments()[1].partition("@")[0] in seen.path for seen in pythias.seen)


def test_code_about_the_hub_reads_from_a_hub(pythias: HubServer) -> None:
    run_page(DOCS / "hub.md", {})
    assert {seen.path.split("/")[4] for seen in pythias.seen if seen.path.startswith("/api")} == {"gpt2", "pythia-160m"}


def test_a_sweep_over_revisions_of_the_hub_keeps_every_step(pythias: HubServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headspan", *shlex.split(SWEPT)[1:], "--workers", "1", "--json"]
    environment = {**hub_environment(pythias, tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 8, done.stdout  # three lenses on three steps, drift between two


def test_a_sweep_takes_the_scheduler_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    for step in (1000, 2000):
        shutil.copytree(DEMO, tmp_path / "run" / f"step-{step}")
    (tmp_path / "models.yaml").write_text("one:\n  1000: run/step-1000\n  2000: run/step-2000\n")
    monkeypatch.chdir(tmp_path)
    options = {"processes": False, "protocol": "tcp", "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster:
        here = {"tcp://10.0.0.1:8786": cluster.scheduler_address}
        Line(SCHEDULED, here, "ranks|done|finished", "--lenses ranks").run()
    assert list((tmp_path / "store" / "parts" / "ranks").glob("*.npz"))


def test_the_wiring_into_cross_attention_is_that_of_an_encoder_and_a_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Line(CROSS, {"MODEL": str(saved("t5", tmp_path / "t5"))}, r"encoder\.L\dH\d").run()


def test_what_is_said_of_an_answer_can_fail() -> None:
    with pytest.raises(AssertionError):
        Line("headspan inspect MODEL", {"MODEL": "demo"}, "Layers 3").run()
    with pytest.raises(AssertionError):
        Line("headspan inspect nowhere", {}, "").run()
