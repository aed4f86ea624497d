"""The import rule: a folder may use those above it in the list, never those below."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headspan"

GROUND = (
    "_version",
    "errors",
    "atomic",
    "command",
    "dims",
    "finding",
    "progress",
    "result",
    "schema",
    "theme",
    "threads",
)
"""Modules beside the folders, which every folder but a leaf may use."""
LAYERS = (
    "demo",
    "statistics",
    "subspaces",
    "distributions",
    "checkpoint",
    "heads",
    "runtime",
    "lenses",
    "lab",
    "ledger",
    "findings",
    "figures",
    "explorer",
    "sweeps",
    "cli",
)
LEAF_GROUND = {"_version", "errors", "atomic", "dims", "threads"}
LEAVES: dict[str, set[str]] = {
    "demo": set(),
    "statistics": set(),
    "subspaces": {"statistics"},
    "distributions": {"statistics", "subspaces"},
}
"""Folders that know no model, with what they may use besides the modules of `LEAF_GROUND`."""
EXCEPTIONS = {("checkpoint/checkpoint.py", "heads")}
"""A checkpoint hands out its heads (decision 0002)."""


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def imported(path: Path) -> Iterator[str]:
    """The headspan folders and modules that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} uses a relative import"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "headspan" else [node.module]
            )
        yield from (name.split(".")[1] for name in names if name.startswith("headspan."))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_up_the_list_only(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0]
    above = LEAF_GROUND | LEAVES[own] if own in LEAVES else {*GROUND, *LAYERS[: LAYERS.index(own)]}
    allowed = {own} | above
    for name in imported(path):
        assert name in allowed or (str(path.relative_to(SOURCE)), name) in EXCEPTIONS, f"{own} may not import {name}"


def test_every_folder_has_its_place_in_the_list() -> None:
    folders = {path.parent.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if path.parent != SOURCE}
    assert folders <= set(LAYERS)
    assert {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"} <= set(GROUND)


def test_the_rule_sees_a_forbidden_import(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from headspan.cli.main import main\n    import headspan.lenses.ranks.ranks\n")
    assert list(imported(file)) == ["cli", "lenses"]
