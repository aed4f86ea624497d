"""Looking at one head: by clicking, filtering, searching, by address, by keyboard; and saving the numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.record import HeadGrid
from tests.browser.chromium import Watched, opened
from tests.browser.synthetic_page import write_page
from tests.browser.synthetic_results import random_detection

WIRING = "#affinity-wiring-diagram"
ARROWS = """() => document.querySelector('#affinity-wiring-diagram .plot').data
  .filter((trace) => trace.meta?.src && trace.opacity > 0.2).map((trace) => trace.meta)"""
POINT = """([id, label]) => {
  const plot = document.querySelector(`#${id} .plot`);
  const trace = plot.data.find((each) => each.text?.includes?.(label));
  const i = trace.text.indexOf(label);
  const axes = plot._fullLayout;
  const box = plot.getBoundingClientRect();
  const [x, y] = [axes[`xaxis${(trace.xaxis ?? 'x').slice(1)}`], axes[`yaxis${(trace.yaxis ?? 'y').slice(1)}`]];
  return [box.left + x._offset + x.d2p(trace.x[i]), box.top + y._offset + y.d2p(trace.y[i])];
}"""


@pytest.fixture(scope="module")
def opened_once(browser: Browser, demo_report: Path) -> Iterator[Watched]:
    with opened(browser, demo_report, "at=affinity-wiring-diagram") as page:
        yield page


@pytest.fixture
def page(opened_once: Watched) -> Iterator[Watched]:
    """The page as if it had just been opened at the wiring diagram: loading it for every test would take minutes."""
    opened_once.evaluate("document.activeElement?.blur(); scrollTo(0, 0)")
    opened_once.look_at("")
    opened_once.look_at("at=affinity-wiring-diagram")
    yield opened_once
    assert opened_once.complaints == []
    assert opened_once.requests == []


def chosen(page: Watched) -> str:
    return str(page.locator("#panel-title").inner_text())


def click_head(page: Watched, figure: str, label: str) -> None:
    page.locator(f"#{figure} .plot").scroll_into_view_if_needed()
    page.settle()
    x, y = page.evaluate(POINT, [figure, label])
    page.mouse.move(x - 2, y - 2)
    page.mouse.move(x, y, steps=3)
    page.mouse.click(x, y)


def test_a_click_on_a_head_opens_its_panel_and_leaves_its_arrows(page: Watched) -> None:
    click_head(page, "affinity-wiring-diagram", "L1H6")
    page.wait_for_function("document.getElementById('panel-title').textContent === 'L1H6'")
    assert page.fragment() == "at=affinity-wiring-diagram&head=L1H6"
    page.settle()
    arrows = page.evaluate(ARROWS)
    assert arrows
    assert {arrow["dst"] for arrow in arrows} == {"L1H6"}


def test_the_panel_names_the_strongest_partners_of_the_lens(page: Watched) -> None:
    pairs = headspan.affinity("demo").table()
    into = [
        (float(edge["projection_kernel"]), str(edge["src"]), str(edge["pairing"]))
        for edge in pairs[pairs["dst"] == "L1H6"].to_dict("records")
    ]
    page.fill("#search", "1.6")
    page.press("#search", "Enter")
    rows = page.locator("#panel .partners").first.locator("tbody tr")
    shown = [tuple(rows.nth(i).locator("td").all_inner_texts()[:2]) for i in range(rows.count())]
    assert shown == [(label, pairing) for _, label, pairing in sorted(into, reverse=True)[: rows.count()]]
    assert rows.count() == 6


@pytest.mark.parametrize(
    ("figure", "label"), [("similarity-map-of-heads", "L0H3"), ("gaussian-entropy-of-attention", "L1H2")]
)
def test_a_click_chooses_a_head_in_other_figures_too(page: Watched, figure: str, label: str) -> None:
    click_head(page, figure, label)
    page.wait_for_function("(label) => document.getElementById('panel-title').textContent === label", arg=label)


def test_a_cell_of_a_heat_map_chooses_its_head(page: Watched) -> None:
    page.evaluate("document.getElementById('spectra-base-alignment').scrollIntoView({behavior: 'instant'})")
    page.wait_for_selector("#spectra-base-alignment .plot[data-drawn=yes]")
    page.settle()
    x, y = page.evaluate("""() => {
      const plot = document.querySelector('#spectra-base-alignment .plot'), axes = plot._fullLayout;
      const box = plot.getBoundingClientRect();
      return [box.left + axes.xaxis._offset + axes.xaxis.d2p(5), box.top + axes.yaxis._offset + axes.yaxis.d2p(1)];
    }""")
    page.mouse.move(x - 3, y)
    page.mouse.click(x, y)
    page.wait_for_function("document.getElementById('panel-title').textContent === 'L1H5'")


def test_a_head_named_in_a_finding_is_a_link(page: Watched) -> None:
    page.locator("#findings a.head", has_text="L0H3").first.click()
    assert chosen(page) == "L0H3"
    assert page.locator("#findings a.head.chosen").first.inner_text() == "L0H3"


def test_filters_act_on_the_wiring_and_on_other_figures(page: Watched) -> None:
    assert len(page.evaluate(ARROWS)) == 60
    page.locator("label[for=pairing-OK]").click()
    page.settle()
    assert {arrow["pairing"] for arrow in page.evaluate(ARROWS)} == {"OQ", "OV"}
    assert page.fragment().endswith("pairing=OQ,OV")
    page.locator("label[for=metric-composition_score]").click()
    page.settle()
    assert "composition score" in page.locator(f"{WIRING} .caption:visible").inner_text()
    page.select_option("#layer-high", "0")
    page.settle()
    assert page.evaluate(ARROWS) == []
    page.evaluate("document.getElementById('similarity-map-of-heads').scrollIntoView({behavior: 'instant'})")
    page.wait_for_selector("#similarity-map-of-heads .plot[data-drawn=yes]")
    left = page.evaluate("""() => { const t = document.querySelector('#similarity-map-of-heads .plot').data[0];
      return Array.from(t.text).filter((_, i) => t.y[i] !== null); }""")
    assert left == [f"L0H{head}" for head in range(8)]
    page.click("#clear")
    assert page.fragment() == "at=affinity-wiring-diagram"


def test_the_threshold_leaves_the_pairs_at_or_above_it(page: Watched) -> None:
    scores = headspan.affinity("demo").table()["projection_kernel"].to_numpy()
    page.locator("#threshold").focus()
    for _ in range(5):
        page.keyboard.press("PageUp")
    least = float(page.fragment().split("min=")[1])
    page.settle()
    assert (
        page.locator("#threshold-note").inner_text().endswith(f"{int((scores >= least).sum())} of {len(scores)} pairs")
    )
    assert 0 < (scores >= least).sum() < len(scores)


def test_an_address_restores_the_view(browser: Browser, demo_report: Path) -> None:
    fragment = "at=affinity-wiring-diagram&head=L0H3&with=L1H6&pairing=OK&metric=composition_score&min=0.1"
    with opened(browser, demo_report, fragment) as page:
        page.settle()
        assert chosen(page) == "L0H3"
        assert "With L1H6" in page.locator("#panel .pair").inner_text()
        assert page.locator("#pairing-OK").is_checked()
        assert not page.locator("#pairing-OQ").is_checked()
        assert page.locator("#metric-composition_score").is_checked()
        assert page.fragment() == fragment
        box = page.locator(WIRING).bounding_box()
        assert box is not None
        assert -50 < box["y"] < 400
        assert page.complaints == []


def test_nonsense_in_the_address_is_passed_over(page: Watched) -> None:
    page.look_at("head=L99H99&layers=7-2&pairing=XX&metric=no&min=<b>&at=nowhere")
    assert chosen(page) == "One head at a time"
    assert page.locator("#pairing-OQ").is_checked()
    page.look_at("%E0%A4%A")
    assert chosen(page) == "One head at a time"


def test_back_and_forward_go_through_the_views(page: Watched) -> None:
    for label in ("L0H3", "L1H6"):
        page.fill("#search", label)
        page.press("#search", "Enter")
    page.go_back()
    assert chosen(page) == "L0H3"
    page.go_back()
    assert chosen(page) == "One head at a time"
    page.go_forward()
    page.go_forward()
    assert chosen(page) == "L1H6"


@pytest.mark.parametrize("text", ["L1H6", "l1h6", " 1.6 "])
def test_search_finds_a_head_however_it_is_written(page: Watched, text: str) -> None:
    page.fill("#search", text)
    page.press("#search", "Enter")
    assert chosen(page) == "L1H6"


def test_search_says_that_there_is_no_such_head(page: Watched) -> None:
    page.fill("#search", "L9H9")
    page.press("#search", "Enter")
    assert "no such head" in page.locator("#search-note").inner_text()
    assert page.locator("#search").get_attribute("aria-invalid") == "true"
    assert chosen(page) == "One head at a time"


def test_everything_can_be_done_with_the_keyboard(page: Watched) -> None:
    page.keyboard.press("/")
    page.keyboard.type("L0H3")
    page.keyboard.press("Enter")
    assert chosen(page) == "L0H3"
    assert page.evaluate("document.activeElement.id") == "panel-title"
    page.keyboard.press("ArrowRight")
    assert chosen(page) == "L0H4"
    page.keyboard.press("ArrowUp")
    assert chosen(page) == "L1H4"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#panel') !== null")
    page.keyboard.press("Escape")
    assert chosen(page) == "One head at a time"
    assert page.evaluate("document.activeElement.id") == "search"


def test_a_figure_is_reached_by_tab_and_opened_by_enter(page: Watched) -> None:
    page.locator(f"{WIRING} .figure-head button").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "Wiring diagram"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert chosen(page) == "L0H0"


def saved(page: Watched, selector: str) -> list[dict[str, str]]:
    with page.expect_download() as waiting:
        page.locator(selector).click()
    path = waiting.value.path()
    return list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8"), newline="")))


def test_pairs_are_saved_digit_for_digit(page: Watched) -> None:
    result = headspan.affinity("demo")
    rows = saved(page, f"{WIRING} .figure-head button")
    assert len(rows) == 3 * 64
    for row in rows:
        here = result.dataset(row["pairing"]).sel(src=row["src"], dst=row["dst"])
        assert float(row["projection_kernel"]) == float(here["projection_kernel"])
        assert float(row["composition_score"]) == float(here["composition_score"])
        for null in ("haar", "reverse"):
            found = here.sel(null=null)
            assert float(row[f"projection_kernel_p_{null}"]) == float(found["projection_kernel_p"])
            assert float(row[f"projection_kernel_q_{null}"]) == float(found["projection_kernel_q"])
        assert row["src"] == f"L{row['src_layer']}H{row['src_index']}"


def test_a_figure_of_heads_is_saved_digit_for_digit(page: Watched) -> None:
    result = headspan.similarity("demo").dataset()
    rows = saved(page, "#similarity-distances-within-layers .figure-head button")
    assert len(rows) == result["layer_distance"].size
    for row in rows:
        here = result.sel(head=row["head"]).isel(peer=int(row["peer"]))
        for name in ("layer_distance", "layer_distance_null", "layer_distance_z"):
            value = float(here[name])
            assert row[name] == "" if np.isnan(value) else float(row[name]) == value
        assert row["head"] == f"L{row['head_layer']}H{row['head_index']}"


def test_a_figure_without_a_table_is_saved_as_drawn(page: Watched) -> None:
    rows = saved(page, "#spectra-singular-values-and-the-law-of-random-matrices .figure-head button")
    assert {row["trace"] for row in rows} >= {"this matrix", "random matrix, scale of the bulk"}
    assert {row["panel"] for row in rows if row["panel"].startswith("W Q")}
    assert all(float(row["x"]) >= 0 for row in rows)


def test_on_a_phone_the_panel_is_a_sheet_and_filters_unfold(browser: Browser, demo_report: Path) -> None:
    with opened(browser, demo_report, width=375, height=700, has_touch=True) as page:
        assert not page.locator("#panel").is_visible()
        assert not page.locator("#threshold").is_visible()
        page.locator("#filters-toggle").click()
        assert page.locator("#threshold").is_visible()
        page.locator("#filters-toggle").click()
        page.locator("#findings a.head").first.click()
        sheet = page.locator("#panel").bounding_box()
        assert sheet is not None
        assert (sheet["x"], sheet["width"]) == (0, 375)
        assert 200 < sheet["y"] < 400
        page.locator("#panel .close").click()
        assert not page.locator("#panel").is_visible()
        assert page.complaints == []


def test_a_page_without_pairs_still_shows_heads(browser: Browser, tmp_path: Path) -> None:
    file = write_page(tmp_path / "one.html", "one layer", HeadGrid([0], 1, 1), [random_detection(1, 1)])
    with opened(browser, file, "at=detect-detector-scores&head=0.0") as page:
        page.settle()
        assert chosen(page) == "L0H0"
        assert "Induction score" in page.locator("#panel").inner_text()
        assert page.locator("#threshold").count() == 0
        assert page.complaints == []
