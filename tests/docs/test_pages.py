"""What the pages print is what the code prints, and what they point at exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from headspan.ledger import all_claims
from tests.conftest import real_model
from tests.docs.pages import DOCS, VALUE, agree, answer_of, blocks, commands, prose, run_page

PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
TUTORIALS = [path for path in (DOCS / "tutorials").glob("*.md") if path.stem != "index"]
LENS_PAGES = {
    **{name: name for name in ("affinity", "wiring", "channels", "similarity", "positions", "spectra", "vocabulary")},
    **{name: name for name in ("gaussian", "mixing", "attention", "compare")},
    "detectors": "detect",
    "interventions": "intervene",
    "validation": "validate",
}
"""Pages of lenses, and their commands."""
MOST_BYTES = 3_000_000


README = DOCS.parent / "README.md"
OLD_NAMES = re.compile(
    r"\w_chance\b|\b[pq]_value\b|anti-?causal|\bcompute\(|headspan\.lenses import|\bcentred\b|--metric\b|--pairing\b|"
    r"headspan\.(show|describe|figures|findings)\b|(figures|findings)_of|"
    r"impossible order|said twice|by chance|beside chance"
)
ABOUT_OLD_NAMES = ("renamed.md", "CHANGELOG.md")


ANSWERED = [each for page in (README, *PAGES) for each in commands(page.read_text(encoding="utf-8"))]
"""Commands with what they print, on every page."""
MATHEMATICS = sorted(f"mathematics/{path.name}" for path in (DOCS / "mathematics").glob("*.md"))
QUICK = ["quickstart.md", "training.md", *MATHEMATICS]
"""Pages whose Python is run by the default suite."""


def at_hand(argument: str) -> str:
    """The real model in place of its name on a page."""
    there = "../shared/models/"
    return str(real_model(argument.removeprefix(there))) if argument.startswith(there) else argument


@pytest.mark.parametrize(("arguments", "answer"), ANSWERED, ids=lambda one: " ".join(one[:3]) * isinstance(one, list))
def test_a_command_answers_as_shown(arguments: list[str], answer: str) -> None:
    printed = answer_of([at_hand(one) for one in arguments])
    assert agree(answer, printed), printed


def test_every_page_that_shows_what_its_code_prints_is_run() -> None:
    """Tutorials by `test_tutorials`, those of developers by `test_developing`; notebooks are compared cell by cell."""
    showing = {page for page in PAGES if any(block.printed is not None for block in blocks(page.read_text()))}
    assert showing <= {*TUTORIALS, *(DOCS / name for name in QUICK), DOCS / "developing" / "family.md"}
    valued = {page.name for page in PAGES for block in blocks(page.read_text()) if VALUE.search(block.text)}
    assert valued == {"information.md", "softmax.md"}, "values in comments: `test_code_of_a_page_runs` compares them"
    assert len(ANSWERED) >= 7


@pytest.mark.parametrize("page", QUICK)
def test_python_on_a_page_prints_what_the_page_says(page: str) -> None:
    run_page(DOCS / page, {})


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda path: path.stem)
def test_every_decimal_in_a_tutorials_prose_is_printed_by_its_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    printed = " ".join(block.text for block in blocks(text) if block.language == "text")
    known = set(re.findall(r"\d+\.\d+", printed)) | {"2601.10266"}
    told = re.sub(r"S\d\.\d+", " ", prose(text))
    assert set(re.findall(r"\d+\.\d+", told)) <= known


def test_every_output_on_a_tutorial_is_filled_in() -> None:
    for page in TUTORIALS:
        for block in blocks(page.read_text()):
            assert block.printed is None or block.printed.strip(), f"{page.name}:{block.line} has an empty answer"


def test_corrections_are_those_of_the_ledger() -> None:
    text = (DOCS / "mathematics" / "corrections.md").read_text()
    ids = re.findall(r"^\| ([\dS][\w.]*) \|", text, re.MULTILINE)
    known = [re.split(r"[-/]", claim.id)[0] for claim in all_claims()]
    assert len(ids) > 20
    assert set(ids) <= set(known)


def test_every_image_is_shown_and_every_shown_image_is_there() -> None:
    shown = {name for page in PAGES for name in re.findall(r"images/([\w-]+)\.\*", page.read_text())}
    there = {path.stem for path in (DOCS / "images").iterdir()}
    assert shown == there
    assert sum(path.stat().st_size for path in (DOCS / "images").iterdir()) < MOST_BYTES


@pytest.mark.parametrize("page", LENS_PAGES)
def test_the_page_of_a_lens_has_the_outline_of_all(page: str) -> None:
    """Question, command, figure, how to read it, options, method, limits, in this order."""
    text = (DOCS / f"{page}.md").read_text()
    assert re.match(r"# [^\n]+\n\n\*\*[^*]+\?\*\*\n\n```console\n", text), "question and command stand below the title"
    assert f"\nheadspan {LENS_PAGES[page]} " in text.partition("\n## ")[0]
    parts = ("\n## How to read the figure", "images/", "\n## Options", "\n## Method", "\n## Limits")
    for heading in parts:
        assert heading == "images/" or text.count(heading) == 1, heading
    places = [text.index(heading) for heading in parts]
    assert places == sorted(places), "the sections stand in another order"
    assert f"```{{command-options}} {LENS_PAGES[page]}\n" in text


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda path: path.stem)
def test_a_page_uses_no_name_that_is_gone(page: Path) -> None:
    if page.name not in ABOUT_OLD_NAMES and "decisions" not in page.parts:
        assert OLD_NAMES.findall(page.read_text(encoding="utf-8")) == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name} links to {target}"


def test_no_page_is_left_out_of_the_contents() -> None:
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.language == "{toctree}":
                entries = [line for line in block.text.splitlines() if line and not line.startswith(":")]
                listed |= {found for entry in entries for found in page.parent.glob(f"{entry}.md")}
    assert set(PAGES) == listed


def test_every_public_package_has_its_reference() -> None:
    pages = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))
    named = dict(re.findall(r"\{package-reference\} ([\w.]+)\n(:modules:)?", pages))
    source = Path(import_module("headspan").__file__ or "").parent
    folders = {path.parent.relative_to(source.parent) for path in source.rglob("__init__.py")}
    packages = {".".join(folder.parts) for folder in folders} - {"headspan.cli", "headspan.demo"}
    inside = {name for name in packages if any(name.startswith(f"{top}.") and whole for top, whole in named.items())}
    formats = {"headspan.checkpoint.formats", "headspan.checkpoint.formats.packed"}
    assert packages - inside - set(named) == formats | {"headspan.checkpoint.hub"}
