"""The demo's report in a real browser: it draws, it does not complain, and it asks nothing of anyone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import Watched, opened

DRAW_ALL = "headspan.figures.drawAll()"
CUT_OFF = """() => [...document.querySelectorAll('.plot')].filter((plot) => {
  const box = plot.getBoundingClientRect();
  return [...plot.querySelectorAll('.infolayer text, .xtick text, .ytick text')].some((text) => {
    const own = text.getBoundingClientRect();
    return own.width > 0 && (own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1);
  });
}).map((plot) => plot.ariaLabel)"""


@pytest.fixture(scope="module")
def whole(browser: Browser, demo_report: Path) -> Iterator[Watched]:
    """The page on a wide screen, everything drawn."""
    with opened(browser, demo_report) as page:
        page.evaluate(DRAW_ALL)
        yield page


def lightness(colour: str) -> float:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / (3 * 255)


def test_every_figure_is_drawn(whole: Watched, demo_report: Path) -> None:
    count = whole.locator("figure.figure").count()
    assert count == demo_report.read_text().count("<figure ") > 20
    assert whole.locator(".plot[data-drawn=yes] svg.main-svg:first-child").count() == count


def test_the_page_does_not_complain_and_asks_nothing(whole: Watched) -> None:
    assert whole.complaints == []
    assert whole.requests == []


def test_no_button_sends_data_away(whole: Watched) -> None:
    titles = "|".join(whole.locator(".modebar-btn").evaluate_all("(all) => all.map((each) => each.dataset.title)"))
    assert "Download plot as a PNG" in titles
    for word in ("Share", "cloud", "Cloud", "Chart Studio"):
        assert word not in titles


def test_no_label_is_cut_off(whole: Watched) -> None:
    assert whole.evaluate(CUT_OFF) == []


OPEN_ARE_DRAWN = """() => headspan.figures.all.every((each) => !each.checkVisibility()
  || headspan.figures.box(each).dataset.drawn)"""
FOLDED_AND_DRAWN = """headspan.figures.all.filter((figure) => !figure.checkVisibility()
  && headspan.figures.box(figure).dataset.drawn === 'yes').length"""


READ = """async () => { const {kinds} = await headspan.home.plotly();
  const {traces} = Plotly.PlotSchema.get();
  return [kinds.length, ['bar', 'heatmap', 'scatter3d', 'sankey'].filter((kind) => traces[kind])]; }"""


def test_of_the_drawing_library_only_the_kinds_of_traces_in_use_are_read(whole: Watched) -> None:
    known, read = whole.evaluate(READ)
    assert known > 30
    assert read == ["bar", "heatmap"]


def test_a_drawing_library_of_another_shape_is_run_as_it_is(whole: Watched) -> None:
    source = "globalThis.shape = 'other'"
    assert (
        whole.evaluate("async (source) => { await headspanLibrary(source, ['bar']); return globalThis.shape; }", source)
        == "other"
    )


def test_figures_are_drawn_when_they_come_near_or_are_not_folded(browser: Browser, demo_report: Path) -> None:
    with opened(browser, demo_report) as page:
        page.settle()
        page.look_at("at=spectra-base-alignment")
        page.wait_for_selector("#spectra-base-alignment .plot[data-drawn=yes]")
        assert page.evaluate(FOLDED_AND_DRAWN) == 0
        # Left alone, the page draws what is not folded without being scrolled to it.
        page.look_at("at=top")
        page.wait_for_function(OPEN_ARE_DRAWN)
        assert page.evaluate(FOLDED_AND_DRAWN) == 0
        assert page.complaints == []


def test_text_stands_out_in_either_scheme_and_the_button_turns_it_over(whole: Watched) -> None:
    for scheme in ("light", "dark"):
        whole.emulate_media(color_scheme=scheme)
        for dark in (scheme == "dark", scheme != "dark"):
            paper = whole.evaluate("getComputedStyle(document.body).backgroundColor")
            for text in (".plot .xtick text", ".caption", ".card h2", ".node text", ".count"):
                ink = whole.locator(text).first.evaluate(
                    "(e) => getComputedStyle(e)[e.ownerSVGElement ? 'fill' : 'color']"
                )
                assert abs(lightness(ink) - lightness(paper)) > 0.45
            assert (lightness(paper) < 0.2) == dark
            whole.click("#theme")
        whole.evaluate("delete document.documentElement.dataset.theme")
    assert whole.complaints == []


def widest(page: Watched) -> list[int]:
    """By how much the page is wider than the window, at several widths of it."""
    beyond = []
    for width in (375, 768, 1100, 1440, 2200):
        page.set_viewport_size({"width": width, "height": 800})
        beyond.append(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
    return beyond


def test_the_page_does_not_scroll_sideways(browser: Browser, demo_report: Path) -> None:
    with opened(browser, demo_report, "head=L1H6", width=375, height=800) as page:
        page.settle()
        assert max(widest(page)) <= 0
        assert page.complaints == []


@pytest.mark.slow
def test_the_page_does_not_scroll_sideways_with_every_figure_drawn(browser: Browser, demo_report: Path) -> None:
    with opened(browser, demo_report, "head=L1H6", width=375, height=800) as page:
        page.evaluate(DRAW_ALL)
        assert max(widest(page)) <= 0
        assert page.complaints == []


def test_what_is_printed_has_no_filters(whole: Watched) -> None:
    whole.emulate_media(media="print", color_scheme="dark")
    for hidden in (".bar", ".controls", "#theme"):
        assert not whole.locator(hidden).is_visible()
    assert lightness(whole.evaluate("getComputedStyle(document.body).backgroundColor")) > 0.9
    whole.emulate_media(media="screen", color_scheme="light")


@pytest.mark.slow
def test_what_is_printed_is_whole(browser: Browser, demo_report: Path) -> None:
    with opened(browser, demo_report) as page:
        page.evaluate("headspan.figures.ready()")
        assert page.locator(".plot:visible:not([data-drawn=yes])").count() > 2
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator(".plot:visible:not([data-drawn=yes])").count() == 0


def test_complaints_and_requests_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!doctype html><body><img src="http://example.invalid/x.png">'
        "<script>console.error('boom'); setTimeout(() => { throw new Error('late'); }, 10);</script></body>"
    )
    with opened(browser, bad) as page:
        page.wait_for_timeout(300)
        assert page.requests == ["http://example.invalid/x.png"]
        assert "error: boom" in page.complaints
        assert "error: late" in page.complaints


@pytest.mark.parametrize(
    "cut", ['id="payload"', 'id="archive-core"', 'id="archive-figures"', 'id="plotly"', "let headspanCount"]
)
def test_half_a_page_still_says_what_was_found(browser: Browser, demo_report: Path, tmp_path: Path, cut: str) -> None:
    html = demo_report.read_text(encoding="utf-8")
    half = tmp_path / "half.html"
    half.write_text(html[: html.index(cut) + 500], encoding="utf-8")
    with opened(browser, half) as page:
        assert page.locator("h1").inner_text() == "demo"
        assert page.locator("#findings li").count() >= 3
        assert page.complaints == []
