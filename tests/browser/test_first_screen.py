"""The first screen, on a phone and of GPT-2's whole page: name, facts, findings and the diagram."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.reports import write_report
from tests.browser.chromium import Watched, opened
from tests.browser.test_layout import PHONE, SIZES

LINES = """(selector) => { const each = document.querySelector(selector), style = getComputedStyle(each);
  return each.getBoundingClientRect().height / parseFloat(style.lineHeight); }"""


def seen_findings(page: Watched) -> int:
    return int(
        page.evaluate("[...document.querySelectorAll('.ranked li')].filter((li) => li.checkVisibility()).length")
    )


def bottom(page: Watched, selector: str) -> float:
    return float(page.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().bottom"))


@pytest.fixture(scope="module")
def phone(browser: Browser, demo_report: Path) -> Iterator[Watched]:
    with opened(browser, demo_report, width=PHONE[0], height=PHONE[1]) as page:
        yield page
        assert page.complaints == []


def test_a_phone_shows_name_two_findings_and_the_diagram_at_once(phone: Watched) -> None:
    for selector in ("h1", ".subtitle", ".count", ".wires"):
        assert 0 < bottom(phone, selector) <= PHONE[1], selector
    assert seen_findings(phone) == 2


def test_further_findings_unfold_and_fold_on_a_phone(phone: Watched) -> None:
    every = phone.locator(".ranked li").count()
    fold = phone.locator(".fold > summary")
    assert fold.inner_text().strip() == f"{every - 2} more findings"
    fold.click()
    assert seen_findings(phone) == every > 2
    fold.click()
    assert seen_findings(phone) == 2


def test_filters_of_a_phone_are_behind_one_button(phone: Watched) -> None:
    button = phone.locator("button.unfold")
    assert not phone.locator("label.choice").first.is_visible()
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    phone.locator("label.choice[data-pairing=OQ]").click()
    assert phone.fragment() == "pairing=OK,OV"
    button.click()
    assert not phone.locator("label.choice").first.is_visible()
    phone.locator("button", has_text="Clear filters").click()
    assert phone.fragment() == "top"


def test_a_small_window_shows_three_findings(browser: Browser, demo_report: Path) -> None:
    with opened(browser, demo_report, width=1024, height=768) as page:
        assert seen_findings(page) == 3
        assert page.locator(".fold > summary").inner_text().strip() == "2 more findings"


def test_a_wide_window_folds_no_finding_and_no_filter(browser: Browser, demo_report: Path) -> None:
    with opened(browser, demo_report, width=1440, height=900) as page:
        assert seen_findings(page) == page.locator(".ranked li").count()
        assert not page.locator("button.unfold, .fold").first.is_visible()
        assert page.locator("label.choice").first.is_visible()


@pytest.fixture(scope="module")
def gpt2_report(gpt2_attention: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole page of GPT-2's attention, of every analysis that applies."""
    return write_report(headspan.open(gpt2_attention), tmp_path_factory.mktemp("gpt2") / "gpt2.html")


@pytest.mark.slow
def test_gpt2s_whole_page_is_ten_screens_long_and_every_node_is_hit(browser: Browser, gpt2_report: Path) -> None:
    with opened(browser, gpt2_report, width=1440, height=900) as page:
        assert page.locator("section.chapter").count() >= 5
        assert page.locator("figure.figure").count() > 20
        for label in (f"L{layer}H{head}" for layer in range(12) for head in range(12)):
            box = page.locator(f".node[data-head={label}] rect").bounding_box()
            assert box is not None
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            assert page.locator("[data-card]").get_attribute("data-card") == label
        page.keyboard.press("Escape")
        page.evaluate("async () => { for (const figure of headspan.figures.all) if (figure.checkVisibility())"
                      " await headspan.figures.draw(figure); }")  # fmt: skip
        assert page.evaluate("document.documentElement.scrollHeight") < 10 * 900
        assert page.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_gpt2s_first_screen_has_the_diagram_and_one_line_of_what_was_skipped(
    browser: Browser, gpt2_report: Path, size: tuple[int, int]
) -> None:
    with opened(browser, gpt2_report, width=size[0], height=size[1]) as page:
        assert page.evaluate(LINES, ".skipped > summary") < 1.5
        top = page.evaluate("document.querySelector('.wires').getBoundingClientRect().top")
        assert top < 0.6 * size[1]
        if size in (PHONE, (1440, 900)):
            assert bottom(page, ".wires") <= size[1]
        page.locator(".skipped > summary").click()
        assert page.locator(".skipped li").count() >= 2
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
