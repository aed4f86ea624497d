"""Layout by geometry at four sizes of the window: nothing overlaps or overflows; and every node of GPT-2 is hit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.payload import HeadGrid
from tests.browser.chromium import Watched, opened
from tests.browser.synthetic_page import write_page

SIZES = ((1440, 900), (1024, 768), (768, 1024), (390, 844))
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


def test_text_has_the_contrast_of_wcag_aa(browser: Browser, demo_report: Path) -> None:
    contrast = """() => {
      const channel = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
      const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
      const rgb = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data]; };
      const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
      const ground = (each) => { for (let at = each; at; at = at.parentElement) {
        const color = rgb(getComputedStyle(at).backgroundColor);
        if (color[3] > 250) return color; } return [255, 255, 255]; };
      const texts = 'h1, h2, h3, p, li, a, summary, button, td, th, dt, dd, .choice span, .count, .quiet';
      return [...document.querySelectorAll(texts)].filter((each) => each.checkVisibility() && each.textContent.trim())
        .filter((each) => !each.closest('.plot, .tokens')).map((each) => {
          const [a, b] = [light(rgb(getComputedStyle(each).color)), light(ground(each))].sort((x, y) => y - x);
          return [(a + 0.05) / (b + 0.05), `${each.tagName} ${each.className} ${each.textContent.slice(0, 30)}`];
        }).filter(([ratio]) => ratio < 4.5);
    }"""
    for scheme in ("light", "dark"):
        with opened(browser, demo_report, "head=L1H6&with=L0H3", color_scheme=scheme) as page:
            assert page.evaluate(contrast) == []


@pytest.mark.slow
def test_a_click_at_the_center_of_every_node_of_gpt2_selects_that_head(
    browser: Browser, gpt2_attention: Path, tmp_path: Path
) -> None:
    file = write_page(tmp_path / "g.html", "gpt2", HeadGrid(range(12), 12, 12), [headspan.affinity(gpt2_attention)])
    with opened(browser, file, width=1440, height=900) as page:
        for label in (f"L{layer}H{head}" for layer in range(12) for head in range(12)):
            box = page.locator(f".node[data-head={label}] rect").bounding_box()
            assert box is not None
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            assert page.locator("[data-card]").get_attribute("data-card") == label
        assert page.complaints == []
        assert page.evaluate("document.documentElement.scrollHeight") < 10 * 900
