"""The README: its numbers are those of the pages they come from, and its links and pictures are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.families.tiny_models import CASES

README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (DOCS / "benchmarks.md").read_text(encoding="utf-8")


def told(pattern: str, page: str = README) -> list[float]:
    """The numbers in the only place of a page that a pattern matches."""
    found = re.findall(pattern, " ".join(page.split()))
    assert len(found) == 1, f"{pattern} is on the page {len(found)} times"
    return [float(number) for number in (found[0] if isinstance(found[0], tuple) else found)]


def test_speed_and_memory_are_those_of_the_benchmarks() -> None:
    fewest, most = told(r"projection kernels are (\d) to (\d) times faster")
    one, two = told(r"projection kernel, one pairing \| ([\d.]+) times faster \| ([\d.]+) \|", BENCHMARKS)
    assert (fewest, most) == (int(two), int(one))
    scores = told(r"composition scores, one mode \| (\d+) to \d+ \| ([\d.]+)", BENCHMARKS)
    assert told(r"Composition scores are more than (\d+) times faster")[0] < min(scores)
    assert told(r"take (\d+) times less memory") == told(r"memory of composition scores \| (\d+) times", BENCHMARKS)


def test_what_is_read_from_the_hub_is_that_of_the_benchmarks() -> None:
    little, layer = told(r"([\d.]+) % of a 7B model to inspect it, ([\d.]+) % for the heads of a layer")
    assert told(r"0\.42 MB in 9 requests, ([\d.]+) %", BENCHMARKS) == [little]
    share = told(r"all heads of one layer \| 84 MB \| ([\d.]+) %", (DOCS / "hub.md").read_text(encoding="utf-8"))
    assert round(share[0], 1) == layer


def test_the_number_of_families_is_that_of_the_proven_ones() -> None:
    proven = len({case.model_type for case in CASES})
    assert told(r"(\d+) families in one layout") == [proven]
    assert told(r"(\d+) types, each proven", (DOCS / "comparison.md").read_text(encoding="utf-8")) == [proven]


@pytest.mark.parametrize("target", sorted(set(re.findall(r'\]\(([^)#]+)|<img src="([^"]+)"', README))), ids="".join)
def test_a_link_of_the_readme_leads_somewhere(target: tuple[str, str]) -> None:
    path = "".join(target)
    assert path.startswith("https://") or (DOCS.parent / path).exists()


def test_the_readme_is_short() -> None:
    """One sentence, one picture, two commands, three reasons, ten lines of Python."""
    above, _, rest = README.partition("\n## Why\n")
    reasons, _, _ = rest.partition("\n## ")
    first = blocks(above)[0]
    assert above.count("![") == 1
    assert len(re.findall(r"\*\*[^*]+\*\*", above)) == 1
    assert len(first.text.splitlines()) == 2
    assert len(re.findall(r"^- \*\*", reasons, re.MULTILINE)) == 3
    code = next(block for block in blocks(README) if block.language == "python")
    assert len([line for line in code.text.splitlines() if line.strip()]) <= 10


def test_the_same_lens_has_the_same_question_on_its_page() -> None:
    for name, target, question in re.findall(r"^\| \[(\w+)\]\((docs/\w+\.md)\) \| ([^|]+\?) \|", README, re.MULTILINE):
        page = (Path(DOCS.parent) / target).read_text(encoding="utf-8")
        assert f"**{question}**" in page, name
