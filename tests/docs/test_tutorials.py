"""Tutorials on real models: every number on the pages comes out again. Code of the other pages at least runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headspan.checkpoint.families import FAMILIES
from tests.docs.pages import DOCS, blocks, run_page

TUTORIALS = DOCS / "tutorials"

NEEDS_THE_HUB = DOCS / "hub.md"
WITH_CODE = [
    path
    for path in sorted(DOCS.glob("*.md"))
    if path not in (NEEDS_THE_HUB, DOCS / "quickstart.md")
    and any(block.language == "python" for block in blocks(path.read_text(encoding="utf-8")))
]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda path: path.stem)
def test_code_of_a_page_runs(page: Path) -> None:
    try:
        run_page(page, {})
    finally:
        FAMILIES.pop("my_model", None)


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
