"""The worked examples of "how to add": their code is run as the pages say, file by file."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

import headspan
from headspan.checkpoint.families import FAMILIES
from headspan.explorer import report
from headspan.explorer.report import write_report
from headspan.figures import figures_of
from headspan.findings import findings_of
from headspan.lenses import LENSES, Lens
from tests.docs.pages import DOCS, blocks, run_page


def test_the_described_family_reproduces_its_model() -> None:
    try:
        run_page(DOCS / "developing" / "family.md", {})
    finally:
        FAMILIES.pop("pocket", None)


@pytest.fixture
def lens_example(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The page's five files, as modules that are found under the names the page gives them."""
    names = ("headspan.lenses.echo", "headspan.findings.echo", "headspan.figures.echo", "entry", "test_echo")
    code = [block.text for block in blocks((DOCS / "developing" / "lens.md").read_text()) if block.language == "python"]
    made = {}
    for name, text in zip(names, code, strict=True):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)  # who asks whether it exists is told yes
        monkeypatch.setitem(sys.modules, name, module)
        package, _, last = name.rpartition(".")
        if package:
            monkeypatch.setattr(sys.modules[package], last, module, raising=False)
        exec(compile(text, f"lens.md: {name}", "exec"), vars(module))  # noqa: S102
        made[name] = module
    return made


def test_the_example_lens_passes_its_own_tests(lens_example: dict[str, ModuleType]) -> None:
    own = {name: test for name, test in vars(lens_example["test_echo"]).items() if name.startswith("test_")}
    assert len(own) == 4
    for test in own.values():
        test()


def test_the_example_lens_is_found_by_name(lens_example: dict[str, ModuleType]) -> None:
    entry = lens_example["entry"].ENTRY
    assert isinstance(entry, Lens)
    result = entry.compute(headspan.open("demo").heads())
    assert float(result["echo"].max()) <= 16
    (finding,) = findings_of("echo", result)
    assert finding.value == pytest.approx(float(result["echo"].max()))
    assert list(figures_of("echo", result)) == ["Echo"]


def test_the_report_shows_the_example_lens(
    lens_example: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "LENSES", {"echo": lens_example["entry"].ENTRY})
    monkeypatch.setitem(LENSES, "echo", lens_example["entry"].ENTRY)  # type: ignore[arg-type]
    page = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "writes most into what it reads" in page
