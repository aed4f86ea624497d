"""The demo's report in a real browser: it draws, it does not complain, and it asks nothing of anyone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headspan
from headspan.report.report import write_report
from tests.browser.chromium import DARK, Opened, opened

ARROWS = "document.querySelectorAll('.plot')[0].querySelectorAll('.scatterlayer .trace:has(.js-line)').length"
CLICK = """(async () => {
  const entry = [...document.querySelector('.plot').querySelectorAll('.legend .traces')]
    .find((item) => item.textContent.startsWith('OK'));
  const target = entry.querySelector('.legendtoggle');
  for (const kind of ['mousedown', 'mouseup'])
    target.dispatchEvent(new MouseEvent(kind, {bubbles: true, view: window}));
  await pause(1500);
  return 'done';
})()"""
QUESTIONS = {
    "figures": "document.querySelectorAll('.plot').length",
    "drawn": "document.querySelectorAll('.plot[data-drawn=yes] svg.main-svg:first-child').length",
    "arrows": ARROWS,
    "buttons": "[...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title).join('|')",
    "text": "getComputedStyle(document.querySelector('.plot .xtick text')).fill",
    "paper": "getComputedStyle(document.body).backgroundColor",
    "overflow": "document.documentElement.scrollWidth - window.innerWidth",
    "inside": """[...document.querySelectorAll('.plot')].filter((plot) => {
      const box = plot.getBoundingClientRect();
      return [...plot.querySelectorAll('.infolayer text, .xtick text, .ytick text')].some((text) => {
        const own = text.getBoundingClientRect();
        return own.width > 0 && (own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1);
      });
    }).map((plot) => plot.ariaLabel).join('|')""",
    "clicked": CLICK,
    "arrows-left": ARROWS,
}


@pytest.fixture(scope="module")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(headspan.open("demo"), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def plain(report_page: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return opened(report_page, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def asked(report_page: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return opened(report_page, tmp_path_factory.mktemp("asked"), "--window-size=1100,1400", questions=QUESTIONS)


@pytest.fixture(scope="module")
def dark_and_narrow(report_page: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("dark")
    return opened(report_page, folder, DARK, "--window-size=500,900", questions=QUESTIONS)


def lightness(colour: str) -> float:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / (3 * 255)


def test_every_figure_is_drawn(asked: Opened, report_page: Path) -> None:
    assert asked.answers["figures"] == asked.answers["drawn"] == str(report_page.read_text().count("<figure>"))
    assert 'class="main-svg"' in asked.dom


def test_the_page_does_not_complain(plain: Opened, asked: Opened, dark_and_narrow: Opened) -> None:
    assert plain.console == asked.console == dark_and_narrow.console == []


def test_the_page_asks_nothing_of_the_network(plain: Opened, asked: Opened) -> None:
    assert plain.requests == asked.requests == []


def test_a_click_in_the_legend_hides_the_arrows_of_a_pairing(asked: Opened) -> None:
    assert asked.answers["clicked"] == "done"
    assert int(asked.answers["arrows"]) == 60
    assert int(asked.answers["arrows-left"]) == 40


def test_no_button_sends_data_away(asked: Opened) -> None:
    assert "Download plot as a PNG" in asked.answers["buttons"]
    for word in ("Share", "cloud", "Cloud", "Chart Studio"):
        assert word not in asked.answers["buttons"]


def test_no_label_is_cut_off(asked: Opened) -> None:
    assert asked.answers["inside"] == ""


def test_text_stands_out_on_a_light_and_on_a_dark_page(asked: Opened, dark_and_narrow: Opened) -> None:
    assert lightness(asked.answers["text"]) < 0.2 < 0.9 < lightness(asked.answers["paper"])
    assert lightness(dark_and_narrow.answers["paper"]) < 0.2 < 0.8 < lightness(dark_and_narrow.answers["text"])


def test_a_narrow_page_does_not_scroll_sideways(dark_and_narrow: Opened) -> None:
    assert int(dark_and_narrow.answers["overflow"]) <= 0


def test_complaints_and_requests_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        '<!doctype html><body><img src="http://example.invalid/x.png">'
        "<script>console.error('boom'); setTimeout(() => { throw new Error('late'); }, 10);</script></body>"
    )
    seen = opened(page, tmp_path, seconds=2)
    assert [line.split('"')[1] for line in seen.console] == ["boom", "Uncaught Error: late"]
    assert seen.requests == ["http://example.invalid/x.png"]
