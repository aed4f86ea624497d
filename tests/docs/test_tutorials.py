"""Tutorials on real models: every number on the pages comes out again. Code of the other pages at least runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import headspan.demo
from headspan.checkpoint.families import FAMILIES
from tests.docs.pages import DOCS, blocks, run_page

TUTORIALS = DOCS / "tutorials"

NEEDS_THE_HUB = DOCS / "hub.md"
SERIES = ("compare", "sweeps", "evolution")
"""Pages about a run's checkpoints, in an order in which each finds what it needs."""
WITH_CODE = [
    path
    for path in sorted(DOCS.glob("*.md"))
    if path not in (NEEDS_THE_HUB, DOCS / "quickstart.md")
    and path.stem not in SERIES
    and any(block.language == "python" for block in blocks(path.read_text(encoding="utf-8")))
]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda path: path.stem)
def test_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        run_page(page, {})
    finally:
        FAMILIES.pop("my_model", None)


def test_code_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(DOCS.parent / "README.md", {})
    assert (tmp_path / "report.html").is_file()


def test_code_about_a_series_runs_on_a_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Path(headspan.demo.__file__).parent / "checkpoint"
    weights = load_file(demo / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for step in (0, 1000, 2000, 3000):
        folder = tmp_path / "run" / f"step-{step}"
        shutil.copytree(demo, folder)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        weights = {
            name: W + 0.05 * W.std() * torch.randn(W.shape, generator=generator, dtype=W.dtype)
            for name, W in weights.items()
        }
    monkeypatch.chdir(tmp_path)
    for page in SERIES:
        run_page(DOCS / f"{page}.md", {})


def test_null_spaces(gpt2_attention: Path, stories: Path) -> None:
    names = {"openai-community/gpt2": str(gpt2_attention), "stories260K": str(stories)}
    run_page(TUTORIALS / "null-spaces.md", names)


def test_affinity(gpt2_attention: Path) -> None:
    run_page(TUTORIALS / "affinity.md", {"openai-community/gpt2": str(gpt2_attention)})


def test_positions(gpt2_attention: Path, minilm: Path) -> None:
    names = {"openai-community/gpt2": str(gpt2_attention), "sentence-transformers/all-MiniLM-L6-v2": str(minilm)}
    run_page(TUTORIALS / "positions.md", names)


def test_gaussians(minilm: Path, stories: Path) -> None:
    names = {"sentence-transformers/all-MiniLM-L6-v2": str(minilm), "stories260K": str(stories)}
    run_page(TUTORIALS / "gaussians.md", names)


def test_copying() -> None:
    run_page(TUTORIALS / "copying.md", {})
