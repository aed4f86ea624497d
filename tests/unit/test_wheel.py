"""What a user gets from `pip install headspan`."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_carries_the_demo_model_and_nothing_heavy(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for file in ("config.json", "model.safetensors", "tokenizer.json", "scores.json"):
        assert f"headspan/demo/checkpoint/{file}" in names
    assert "headspan/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    assert wheel.stat().st_size < 2_000_000


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel], check=True, cwd=tmp_path
    )
    shown = subprocess.run(
        [python.parent / "headspan", "inspect", "demo", "--json"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert json.loads(shown.stdout)["family"] == "llama"
    subprocess.run([python.parent / "headspan", "report", "demo"], check=True, cwd=tmp_path, capture_output=True)
    assert (tmp_path / "report.html").stat().st_size > 1000
