"""Names and tokens are data: whatever they hold is shown as text, in titles, figures, tables, files and the panel."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from headspan.explorer.payload import HeadGrid
from headspan.finding import Finding
from headspan.heads.classes import HeadClasses
from tests.browser.chromium import Watched, opened
from tests.browser.page_elements import asks_nothing
from tests.browser.synthetic_page import write_page
from tests.browser.synthetic_results import attention_of, random_affinity

MODEL = "<script>alert(1)</script>"
CLASS = '<a href="http://example.invalid/">"class"</a>'
TOKENS = [
    "</script>",
    "\u2028",
    "\u202e\u200f",
    "<b>x</b>",
    '"',
    "'",
    "&lt;",
    "a,b",
    "<img src=x>",
    "<!--",
    "\n",
    "=1+1",
]
SHOWN = [
    "</script>",
    "\\u2028",
    "\\u202e\\u200f",
    "<b>x</b>",
    '"',
    "'",
    "&lt;",
    "a,b",
    "<img src=x>",
    "<!--",
    "\\n",
    "=1+1",
]


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = [random_affinity(2, 4, 4), attention_of(TOKENS, 2, 4)]
    findings = [
        Finding("affinity", f"L0H1 likes {MODEL} \u202e.", value=1.0, evidence=CLASS, reference=MODEL, weight=1.0)
    ]
    classes = [HeadClasses({CLASS: ("L0H1", "L1H2")}, MODEL)]
    path = tmp_path_factory.mktemp("hostile") / "hostile.html"
    return write_page(path, MODEL, HeadGrid(range(2), 4, 4), results, findings, classes)


@pytest.fixture(scope="module")
def page(browser: Browser, hostile_report: Path) -> Iterator[Watched]:
    with opened(browser, hostile_report, "head=L0H1") as page:
        page.evaluate("headspan.figures.drawAll()")
        yield page


def test_nothing_in_a_name_runs_or_is_fetched(page: Watched, hostile_report: Path) -> None:
    assert asks_nothing(hostile_report.read_text())
    assert page.complaints == []
    assert page.requests == []
    assert page.locator("main a:not([href^='#']), main img, svg a").count() == 0


def test_the_title_is_text(page: Watched) -> None:
    assert page.title() == f"{MODEL} · headspan"
    assert page.locator("h1").inner_text() == MODEL
    assert MODEL in page.locator("#findings").inner_text()


def test_classes_are_text_in_the_panel_and_in_legends(page: Watched) -> None:
    assert page.locator(".card .class").inner_text() == CLASS
    assert page.locator(".wires-legend .set-name").inner_text() == CLASS
    assert CLASS in str(page.locator('[data-head="L0H1"][role=button]').get_attribute("aria-label"))


def test_tokens_are_text_in_figures(page: Watched) -> None:
    ticks = page.locator("#attention-attention-map .xtick text").all_text_contents()
    assert ticks == SHOWN


def test_tokens_are_text_on_the_card(page: Watched) -> None:
    assert page.locator(".card .tokens span").all_text_contents() == SHOWN


def test_tokens_are_text_in_files(page: Watched) -> None:
    with page.expect_download() as waiting:
        page.locator("#attention-attention-map .figure-head button").click()
    text = Path(waiting.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    # A spreadsheet would take what begins with = for a formula.
    texts = {f"{query} {key}" for query in SHOWN for key in SHOWN}
    assert {row["text"] for row in rows} == {f"'{text}" if text.startswith("=") else text for text in texts}
