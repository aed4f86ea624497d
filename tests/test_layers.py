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
    "loading",
    "input_files",
    "seal",
    "folder_lock",
    "atomic",
    "dims",
    "threads",
    "progress",
    "time_limit",
    "theme",
    "finding",
    "schema",
    "command",
    "labels",
    "frames",
    "storage",
    "documents",
    "notebook_views",
    "result",
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
    "explorer",
    "sweeps",
    "callbacks",
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


ROLES_OF_FILES = {
    "__init__": {"findings", "figures", "command", "measurement"},
    "schema": {"findings", "figures", "command", "measurement"},
    "findings": {"figures", "command", "measurement"},
    "figures": {"findings", "command", "measurement"},
    "command": {"findings", "figures", "measurement"},
}
"""What a file of a lens's folder must not import of its own folder; any other file is part of the measurement."""
MEASUREMENT = {"findings", "figures", "command"}


def lens_files() -> list[Path]:
    return sorted((SOURCE / "lenses").glob("*/*.py"))


def own_parts(path: Path) -> Iterator[str]:
    """The modules of its own folder that a file of a lens imports when it is loaded."""
    package = f"headspan.lenses.{path.parent.name}"
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(package):
            rest = node.module.removeprefix(package).strip(".")
            yield from [rest.split(".")[0]] if rest else [alias.name for alias in node.names]


@pytest.mark.parametrize("path", lens_files(), ids=lambda path: "/".join(path.parts[-2:]))
def test_parts_of_a_lens_keep_to_their_roles(path: Path) -> None:
    drawn = path.stem.endswith(("_figure", "_figures", "_layout"))
    forbidden = ROLES_OF_FILES.get("figures" if drawn else path.stem, MEASUREMENT)
    found = set(own_parts(path)) & (forbidden - {path.stem})
    assert not found, f"{path.parent.name}/{path.name} may not import {', '.join(sorted(found))}"


@pytest.mark.parametrize("path", lens_files(), ids=lambda path: "/".join(path.parts[-2:]))
def test_a_lens_uses_another_by_its_public_function_alone(path: Path) -> None:
    own, others = path.parent.name, {folder.name for folder in (SOURCE / "lenses").iterdir() if folder.is_dir()}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("headspan.lenses."):
            parts = node.module.split(".")
            if parts[2] in others - {own}:
                assert len(parts) == 3, f"{own} imports {node.module}"
                assert [alias.name for alias in node.names] == [parts[2]], f"{own} imports more than {parts[2]}"


WORDS = {"pair", "positions", "vocabulary", "wiring"}
"""Words of a model's description, and of results that hold edges, that lenses bear too."""


def test_no_dispatcher_names_a_lens() -> None:
    """The executor, the command line, the report, sweeps and the lab find lenses in the catalog."""
    names = {folder.name for folder in (SOURCE / "lenses").iterdir() if (folder / "schema.py").is_file()}
    files = [*(SOURCE / "lenses").glob("*.py")]
    files += [path for room in ("cli", "explorer", "sweeps") for path in (SOURCE / room).rglob("*.py")]
    files += [SOURCE / "result.py", SOURCE / "frames.py", SOURCE / "documents.py", SOURCE / "lab" / "record.py"]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("headspan.lenses."):
                assert node.module.split(".")[2] not in names, f"{path.relative_to(SOURCE)} imports {node.module}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in names - WORDS, f"{path.relative_to(SOURCE)} names {node.value!r}"


def test_every_folder_has_its_place_in_the_list() -> None:
    folders = {path.parent.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if path.parent != SOURCE}
    assert folders <= set(LAYERS)
    assert {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"} <= set(GROUND)


def test_the_rule_sees_a_forbidden_import(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from headspan.cli.main import main\n    import headspan.lenses.ranks.ranks\n")
    assert list(imported(file)) == ["cli", "lenses"]
