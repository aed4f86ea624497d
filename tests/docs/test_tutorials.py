"""Tutorials on real models: every number on the pages comes out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, run_page

TUTORIALS = DOCS / "tutorials"

pytestmark = pytest.mark.slow


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
