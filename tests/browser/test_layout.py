"""Layout by geometry at four sizes of the window: nothing overlaps or overflows, and text can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import Watched, opened

PHONE = (390, 844)
SIZES = ((1440, 900), (1024, 768), (768, 1024), PHONE)
BOXES = """(selectors) => selectors.flatMap((selector) => [...document.querySelectorAll(selector)])
  .filter((each) => each.checkVisibility()).map((each) => {
    const {left, top, right, bottom} = each.getBoundingClientRect();
    const name = each.dataset.head ?? each.className.baseVal ?? `${each.className} ${each.textContent.slice(0, 20)}`;
    return [name, left, top, right, bottom];
  })"""
OVERFLOWING = """() => [...document.querySelectorAll('.bar *, .controls *, .opening *, .card *, .top *')]
  .filter((each) => each.checkVisibility() && !each.closest('.menu-body')).filter((each) => {
    const box = each.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map((each) => `${each.tagName} ${each.className} ${each.textContent.slice(0, 30)}`)"""
BROKEN = """() => [...document.querySelectorAll('button, .choice span, summary, .partners td')].filter((each) => {
  if (!each.checkVisibility() || each.closest('details.more, details.chapter')) return false;
  return each.getBoundingClientRect().height > 2.2 * parseFloat(getComputedStyle(each).fontSize) + 12;
}).map((each) => each.textContent)"""
Box = tuple[str, float, float, float, float]


def overlapping(boxes: list[Box]) -> list[tuple[str, str]]:
    found = []
    for place, (name, left, top, right, bottom) in enumerate(boxes):
        for other, other_left, other_top, other_right, other_bottom in boxes[place + 1 :]:
            across = min(right, other_right) - max(left, other_left)
            down = min(bottom, other_bottom) - max(top, other_top)
            if across > 1 and down > 1:
                found.append((name, other))
    return found


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def sized(request: pytest.FixtureRequest, browser: Browser, demo_report: Path) -> Iterator[Watched]:
    width, height = request.param
    with opened(browser, demo_report, "head=L1H6&with=L0H3", width=width, height=height) as page:
        if width == PHONE[0]:
            page.locator("button.unfold").click()
        yield page


def test_parts_of_the_page_do_not_overlap(sized: Watched) -> None:
    parts = [".top", ".opening", ".bar", ".diagram", ".card", "#chapter-wiring"]
    boxes = sized.evaluate(BOXES, parts)
    assert len(boxes) == len(parts)
    assert overlapping(boxes) == []


def test_controls_and_nodes_do_not_overlap(sized: Watched) -> None:
    for selectors in ([".bar > *"], [".controls > *"], [".node rect"], [".wires-legend > span"], [".card header > *"]):
        boxes = sized.evaluate(BOXES, selectors)
        assert len(boxes) > 1
        assert overlapping(boxes) == []


def test_nothing_overflows_and_no_button_breaks(sized: Watched) -> None:
    assert sized.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert sized.evaluate(OVERFLOWING) == []
    assert sized.evaluate(BROKEN) == []
    assert sized.complaints == []


CONTRAST = """() => {
  const channel = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (...texts) => { canvas.clearRect(0, 0, 1, 1);
    for (const text of texts) { canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const ground = (each) => { const found = [];
    for (let at = each; at; at = at.parentElement) found.unshift(getComputedStyle(at).backgroundColor);
    return rgb('white', ...found); };
  const ratio = (text, back) => { const [a, b] = [light(text), light(back)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05); };
  const words = 'h1, h2, h3, h4, p, li, a, summary, button, td, th, dt, dd, code, output, .choice span, .tokens span, '
    + '.class, .pairing, .key span, .wires-legend span';
  const texts = [...document.querySelectorAll(words)]
    .filter((each) => each.checkVisibility() && each.textContent.trim() && !each.closest('.plot'))
    .map((each) => [ratio(rgb(getComputedStyle(each).color), ground(each)), each]);
  const fill = (each) => rgb(getComputedStyle(each).fill);
  const nodes = [...document.querySelectorAll('.node text')].map((each) => (
    [ratio(fill(each), fill(each.parentElement.querySelector('rect'))), each]));
  const drawn = [...document.querySelectorAll('.wires .axis text, .spark text')].map((each) => (
    [ratio(fill(each), ground(each)), each]));
  const name = (each) => `${each.tagName} ${each.textContent.slice(0, 30)}`;
  return [...texts, ...nodes, ...drawn].map(([value, each]) => [value, name(each)]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(browser: Browser, demo_report: Path, scheme: str) -> None:
    with opened(browser, demo_report, "head=L1H6&with=L0H3", color_scheme=scheme) as page:
        page.locator("label.choice", has_text="Out of it").click()
        found = page.evaluate(CONTRAST)
        assert page.locator(".node.quiet rect.colored").count() > 0
        assert sum(name.startswith("text ") for _, name in found) > 16
        assert [(ratio, name) for ratio, name in found if ratio < 4.5] == []
