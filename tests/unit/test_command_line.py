"""The command line: quick, torch-free where it can be, JSON that says what the table says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from headspan.cli.main import app
from tests.browser.page_elements import asks_nothing
from tests.conftest import Program
from tests.families.tiny_models import CASES

HEAVY = ("torch", "numpy", "xarray", "transformers", "safetensors")


def heavy_modules_after(arguments: list[str]) -> list[str]:
    """Which heavy libraries a command loads, asked of a fresh interpreter."""
    program = (
        "import sys, json\n"
        "from headspan.cli.main import app\n"
        f"app({arguments!r}, standalone_mode=False)\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    return loaded


def test_help_loads_nothing_heavy() -> None:
    assert heavy_modules_after(["--help"]) == []


@pytest.mark.parametrize(("own", "used"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_the_user_says_otherwise(own: str | None, used: str) -> None:
    program = (
        "import atexit, os, sys\n"
        "from headspan.cli.main import main\n"
        "assert 'torch' not in sys.modules\n"
        "sys.argv = ['headspan', '--version']\n"
        "atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY']))\n"
        "main()"
    )
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    env |= {} if own is None else {"OMP_WAIT_POLICY": own}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == used


def test_inspect_loads_nothing_heavy_for_any_file_format(stories: Path, tmp_path: Path) -> None:
    assert heavy_modules_after(["inspect", str(stories), "--json"]) == []
    model = CASES[0].model()
    (tmp_path / "config.json").write_text(model.config.to_json_string())
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert heavy_modules_after(["inspect", str(tmp_path)]) == []
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert heavy_modules_after(["inspect", str(tmp_path)]) == []


def test_importing_headspan_loads_nothing_heavy() -> None:
    program = f"import sys, headspan; assert not [m for m in {HEAVY!r} if m in sys.modules], sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_inspect_json_has_the_documented_fields(stories: Path) -> None:
    done = CliRunner().invoke(app, ["inspect", str(stories), "--json"])
    about = json.loads(done.stdout)
    assert about["schema"] == "headspan.inspect/1"
    assert about["provenance"]["model"] == str(stories)
    assert about["family"] == "llama"
    assert about["n_parameters"] == 260_032
    assert about["dtypes"] == {"float32": 47}
    (stack,) = about["stacks"]
    shape = ("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head")
    assert [stack[key] for key in shape] == [5, 8, 4, 64, 8]
    assert (stack["positions"], stack["norm"], stack["norm_place"]) == ("rotary", "rmsnorm", "before")
    assert stack["missing"] == stack["unclaimed"] == []
    assert about["analyses"]["ranks"] == {"applies": True, "reason": None}


def test_inspect_says_what_a_partial_checkpoint_lacks(gpt2_attention: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", str(gpt2_attention)])
    assert shown.exit_code == 0
    assert "W_E, W_U, MLP" in shown.stdout
    assert "29,173,248 in 99 tensors" in shown.stdout


def test_a_single_file_needs_its_config(stories: Path, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes((stories / "model.safetensors").read_bytes())
    done = CliRunner().invoke(app, ["inspect", str(file), "--config", str(stories / "config.json")])
    assert done.exit_code == 0


@pytest.mark.slow
def test_report_is_one_file_that_asks_nothing_of_the_network(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", "demo", "-o", str(page)])
    assert done.exit_code == 0
    assert str(page) in done.stdout
    html = page.read_text()
    assert asks_nothing(html)
    for fact in ("What this model is", "2 layers of 8 heads", "rotary", "full rank", "sha256:"):
        assert fact in html


@pytest.mark.parametrize("target", ["missing/report.html", "."])
def test_a_report_that_cannot_be_written_leaves_nothing_behind(target: str, tmp_path: Path, program: Program) -> None:
    done = program("report", "demo", "-o", str(tmp_path / target))
    assert done.returncode == 2
    assert "cannot write" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_the_page_on_checkpoints_shows_what_inspect_prints() -> None:
    page = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text()
    shown = page.split("$ headspan inspect demo\n")[1].split("```")[0]
    printed = CliRunner().invoke(app, ["inspect", "demo"]).stdout
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_version_is_printed() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.stdout.startswith("headspan 0.")
