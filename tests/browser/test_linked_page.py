"""Looking at one head: by clicking, filtering, searching, by address, by keyboard; and saving the numbers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.payload import HeadGrid
from headspan.lenses.affinity.wiring import edges
from tests.browser.chromium import Watched, opened
from tests.browser.synthetic_page import write_page
from tests.browser.synthetic_results import random_detection

ARROWS = """() => [...document.querySelectorAll(document.querySelector('.edges').getAttribute('opacity') === '1'
    ? '.edge' : '.own .edge')]
  .map((edge) => { const [src, dst, pairing] = edge.dataset.edge.split('-'); return {src, dst, pairing}; })"""
POINT = """([id, label]) => {
  const plot = document.querySelector(`#${id} .plot`);
  const trace = plot.data.find((each) => each.text?.includes?.(label));
  const i = trace.text.indexOf(label);
  const axes = plot._fullLayout;
  const box = plot.getBoundingClientRect();
  const [x, y] = [axes[`xaxis${(trace.xaxis ?? 'x').slice(1)}`], axes[`yaxis${(trace.yaxis ?? 'y').slice(1)}`]];
  return [box.left + x._offset + x.d2p(trace.x[i]), box.top + y._offset + y.d2p(trace.y[i])];
}"""
OVERVIEW = "L0H3"
"""The head whose card stands open at first: the one with most pairs that stand out."""


@pytest.fixture(scope="module")
def opened_once(browser: Browser, demo_report: Path) -> Iterator[Watched]:
    with opened(browser, demo_report) as page:
        yield page


@pytest.fixture
def page(opened_once: Watched) -> Iterator[Watched]:
    """The page as if it had just been opened: loading it for every test would take minutes."""
    opened_once.evaluate("document.activeElement?.blur(); scrollTo(0, 0); document.body.click()")
    opened_once.look_at("")
    yield opened_once
    assert opened_once.complaints == []
    assert opened_once.requests == []


def shown(page: Watched) -> str:
    """The head whose card is shown."""
    return str(page.locator("[data-card]").get_attribute("data-card"))


def chosen(page: Watched) -> str | None:
    """The head that was chosen; None where nothing was, and the card is that of the most interesting head."""
    return shown(page) if page.locator(".card[data-chosen]").count() else None


def find(page: Watched, text: str) -> None:
    page.fill(".search", text)
    page.press(".search", "Enter")


def go_to(page: Watched, figure: str) -> None:
    """Follow the contents to a figure, which unfolds what it is in, and wait until it is drawn."""
    page.evaluate("(id) => document.querySelector(`.menu a[href='#${id}']`).click()", figure)
    page.wait_for_selector(f"#{figure} .plot[data-drawn=yes]")
    page.settle()


def center(page: Watched, label: str) -> tuple[float, float]:
    box = page.locator(f".node[data-head={label}] rect").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_first_screen_has_findings_the_diagram_and_the_card_of_a_head(browser: Browser, demo_report: Path) -> None:
    with opened(browser, demo_report, width=1440, height=900) as page:
        assert page.locator("h1").inner_text() == "demo"
        assert 1 <= page.locator("#findings li").count() <= 5
        for part in (".wires", ".card-title"):
            box = page.locator(part).first.bounding_box()
            assert box is not None
            assert box["y"] + min(box["height"], 200) < 900
        assert chosen(page) is None
        assert shown(page) == OVERVIEW


def test_a_click_at_the_center_of_every_node_selects_it(page: Watched) -> None:
    labels = [f"L{layer}H{head}" for layer in range(2) for head in range(8)]
    for label in labels:
        page.mouse.click(*center(page, label))
        assert chosen(page) == label
        assert page.locator(".node.chosen").get_attribute("data-head") == label


def test_a_click_on_a_head_leaves_its_arrows_in_front(page: Watched) -> None:
    page.mouse.click(*center(page, "L1H6"))
    assert page.fragment() == "head=L1H6"
    arrows = page.evaluate(ARROWS)
    assert arrows
    assert {arrow["dst"] for arrow in arrows} == {"L1H6"}


def test_a_click_on_an_arrow_opens_its_pair(page: Watched) -> None:
    page.look_at("pairing=OK&min=8.5")
    (arrow,) = page.evaluate(ARROWS)
    x, y = page.evaluate("""() => {
      const path = document.querySelector('.edge'), svg = path.ownerSVGElement.getBoundingClientRect();
      const {x, y} = path.getPointAtLength(path.getTotalLength() / 2);
      return [svg.left + x, svg.top + y];
    }""")
    page.mouse.move(x, y)
    tip, node = page.locator(".tip:not([hidden])"), page.locator(".node[data-head=L1H6] rect")
    assert "L0H3 → L1H6 (OK, stands out)" in tip.inner_text()
    page.mouse.click(x, y)
    assert page.fragment() == "head=L1H6&with=L0H3&pairing=OK&min=8.5"
    assert (arrow["src"], arrow["dst"]) == ("L0H3", "L1H6")
    assert "With L0H3" in page.locator(".card .pair").inner_text()
    assert node.count() == 1


def test_the_tooltip_does_not_cover_what_it_is_about(page: Watched) -> None:
    for label in ("L0H0", "L1H0", "L1H7", "L0H3"):
        x, y = center(page, label)
        page.mouse.move(x, y)
        tip = page.locator(".tip:not([hidden])").bounding_box()
        assert tip is not None
        assert not (tip["x"] <= x <= tip["x"] + tip["width"] and tip["y"] <= y <= tip["y"] + tip["height"])


def test_labels_fit_their_nodes(page: Watched) -> None:
    wide = page.evaluate("""() => [...document.querySelectorAll('.node')].filter((node) => {
      const [box, text] = ['rect', 'text'].map((part) => node.querySelector(part)?.getBoundingClientRect());
      return text && (text.width > box.width || text.height > box.height + 4);
    }).map((node) => node.dataset.head)""")
    assert wide == []


def test_the_card_names_the_strongest_partners_of_the_lens(page: Watched) -> None:
    pairs = headspan.affinity("demo").table()
    into = [
        (float(edge["projection_kernel"]), str(edge["src"]), str(edge["pairing"]))
        for edge in pairs[pairs["dst"] == "L1H6"].to_dict("records")
    ]
    find(page, "1.6")
    rows = page.locator(".card .partners").first.locator("tbody tr")
    told = [tuple(rows.nth(i).locator("td").all_inner_texts()[:2]) for i in range(rows.count())]
    assert told == [(label, pairing) for _, label, pairing in sorted(into, reverse=True)[: rows.count()]]
    assert rows.count() == 5


def test_the_card_says_what_a_head_seems_to_be_and_shows_its_attention(page: Watched) -> None:
    find(page, "L0H3")
    words = page.locator(".card .sentence").inner_text()
    assert "L0H3 is labeled previous token; it writes most to the keys of L1H6" in words
    assert "attends mostly to the previous token" in words
    tokens = page.locator(".card .tokens span")
    tokens.nth(20).hover()
    assert tokens.nth(20).get_attribute("class") == "asking"
    token = tokens.nth(20).inner_text()
    assert f"“{token}” attends most to “" in page.locator(".card .map-note").inner_text()


@pytest.mark.parametrize(
    ("figure", "label"), [("similarity-map-of-heads", "L0H3"), ("gaussian-entropy-of-attention", "L1H2")]
)
def test_a_click_chooses_a_head_in_other_figures_too(page: Watched, figure: str, label: str) -> None:
    go_to(page, figure)
    x, y = page.evaluate(POINT, [figure, label])
    page.mouse.move(x - 2, y - 2)
    page.mouse.move(x, y, steps=3)
    page.mouse.click(x, y)
    page.wait_for_selector(f"[data-card={label}][data-chosen]")


def test_a_cell_of_a_heat_map_chooses_its_head(page: Watched) -> None:
    go_to(page, "spectra-base-alignment")
    x, y = page.evaluate("""() => {
      const plot = document.querySelector('#spectra-base-alignment .plot'), axes = plot._fullLayout;
      const box = plot.getBoundingClientRect();
      return [box.left + axes.xaxis._offset + axes.xaxis.d2p(5), box.top + axes.yaxis._offset + axes.yaxis.d2p(1)];
    }""")
    page.mouse.move(x - 3, y)
    page.mouse.click(x, y)
    page.wait_for_selector("[data-card=L1H5][data-chosen]")


STYLE_OF = "(all, name) => all.map((each) => getComputedStyle(each)[name])"


def test_curves_and_bars_of_a_card_are_drawn_in_color_and_within_their_boxes(page: Watched) -> None:
    page.look_at("head=L1H6")
    curves = page.locator(".card .spark .line").evaluate_all(STYLE_OF, "stroke")
    assert curves
    assert "none" not in curves
    for part in (".card .key i", ".card .partners .score i"):
        assert "rgba(0, 0, 0, 0)" not in page.locator(part).evaluate_all(STYLE_OF, "backgroundColor")
    beyond = """(ticks) => ticks.filter((tick) => tick.getBoundingClientRect().right
      > tick.parentElement.getBoundingClientRect().right + 2.5).length"""
    assert page.locator(".card .partners .score b").evaluate_all(beyond) == 0


def test_a_small_map_chooses_its_head_and_shows_it_large(page: Watched) -> None:
    line = page.locator("[data-maps] canvas[data-layer='1']")
    line.scroll_into_view_if_needed()
    box = line.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 2.5 / 8, box["y"] + box["height"] / 2)
    assert chosen(page) == "L1H2"
    assert page.locator(".map-large [data-map=L1H2]").count() == 1


def test_a_head_named_in_a_finding_is_a_link(page: Watched) -> None:
    page.locator("#findings a.head", has_text="L0H3").first.click()
    assert chosen(page) == "L0H3"
    assert page.locator("#findings a.head.chosen").first.inner_text() == "L0H3"


def test_filters_act_on_the_wiring_and_on_other_figures(page: Watched) -> None:
    assert len(page.evaluate(ARROWS)) > 60
    page.locator("[data-pairing=OK]").click()
    assert {arrow["pairing"] for arrow in page.evaluate(ARROWS)} == {"OQ", "OV"}
    assert page.fragment() == "pairing=OQ,OV"
    page.select_option("[aria-label='Last layer']", "0")
    assert page.evaluate(ARROWS) == []
    go_to(page, "similarity-map-of-heads")
    left = page.evaluate("""() => { const t = document.querySelector('#similarity-map-of-heads .plot').data[0];
      return Array.from(t.text).filter((_, i) => t.y[i] !== null); }""")
    assert left == [f"L0H{head}" for head in range(8)]
    page.click(".clear")
    assert page.fragment() == "at=similarity-map-of-heads"


def test_tiers_are_counted_and_background_is_off_until_asked_for(page: Watched) -> None:
    table = headspan.affinity("demo").table()
    result = headspan.affinity("demo")
    standing = sum(int((edges(result, pairing)["tier"] == "stands out").sum()) for pairing in ("OQ", "OK", "OV"))
    count = page.locator(".count").inner_text()
    assert f"{standing} pairs stand out, {len(table) - standing} do not" in count
    assert "reverse order" in page.locator(".null-note").inner_text()
    assert page.locator(".edge").count() == standing
    page.locator("[data-tier=background].choice").click()
    assert page.locator(".edge").count() == len(table)
    assert page.fragment() == "tier=strong,out,background"


def test_sliders_leave_pairs_by_score_and_by_q(page: Watched) -> None:
    result = headspan.affinity("demo")
    scores = result.table()["projection_kernel"].to_numpy()
    page.locator("[aria-label=Score][type=range]").focus()
    for _ in range(5):
        page.keyboard.press("PageUp")
    least = float(page.fragment().split("min=")[1])
    kept = int((scores >= least).sum())
    assert 0 < kept < len(scores)
    told = page.locator(".count").inner_text().replace("None of ", "")
    assert sum(int(part) for part in re.findall(r"(\d+) (?:pairs|do not)", told)) == kept
    page.look_at("q=0.01")
    nulls = result.table(null="reverse")
    assert page.locator(".edge").count() == int((nulls["projection_kernel_q"] <= 0.01).sum())


def test_both_scores_stand_side_by_side(page: Watched) -> None:
    page.locator("label.choice", has_text="Both").click()
    assert page.locator(".wires:visible").count() == 2
    assert page.locator(".canvas-title:visible").all_inner_texts() == ["Projection kernel", "Composition score"]
    assert page.fragment() == "beside=1"


def test_a_path_is_found_and_pinned_heads_make_a_subgraph(page: Watched) -> None:
    page.look_at("path=L0H3-L1H6")
    assert page.evaluate(ARROWS)[0]["src"] == "L0H3"
    assert len(page.evaluate(ARROWS)) == 1
    page.look_at("pin=L0H3,L1H6")
    assert {(arrow["src"], arrow["dst"]) for arrow in page.evaluate(ARROWS)} == {("L0H3", "L1H6")}
    assert page.locator(".node .pin").count() == 2


def test_a_set_of_the_readers_own_is_colored_and_filtered_by(page: Watched) -> None:
    page.locator("summary", has_text="Sets").click()
    page.fill("[aria-label='Name of the set']", "mine")
    page.fill("[aria-label='Heads of the set']", "L0H2, 1.5")
    page.press("[aria-label='Heads of the set']", "Enter")
    assert page.fragment() == "set=mine%3AL0H2,L1H5"
    assert "mine" in page.locator(".wires-legend").inner_text()
    page.look_at("class=mine&set=mine:L0H2,L1H5")
    ends = {(arrow["src"], arrow["dst"]) for arrow in page.evaluate(ARROWS)}
    assert ends
    assert all(src == "L0H2" or dst == "L1H5" for src, dst in ends)


def test_an_address_restores_the_view(browser: Browser, demo_report: Path) -> None:
    fragment = (
        "at=chapter-spectra&head=L0H3&with=L1H6&pairing=OK&metric=composition_score&min=0.1&q=0.05&way=out&pin=L0H3"
    )
    with opened(browser, demo_report, fragment) as page:
        page.settle()
        assert chosen(page) == "L0H3"
        assert "With L1H6" in page.locator(".card .pair").inner_text()
        assert page.locator("[data-pairing=OK] input").is_checked()
        assert not page.locator("[data-pairing=OQ] input").is_checked()
        assert page.fragment() == fragment
        box = page.locator("#chapter-spectra").bounding_box()
        assert box is not None
        assert -50 < box["y"] < 400
        assert page.complaints == []


def test_nonsense_in_the_address_is_passed_over(page: Watched) -> None:
    page.look_at("head=L99H99&layers=7-2&pairing=XX&metric=no&min=<b>&at=nowhere&pin=x&path=a-b&set=:&tier=no")
    assert chosen(page) is None
    assert page.locator("[data-pairing=OQ] input").is_checked()
    page.look_at("%E0%A4%A")
    assert chosen(page) is None


def test_back_and_forward_go_through_the_views(page: Watched) -> None:
    for label in ("L0H3", "L1H6"):
        find(page, label)
    page.go_back()
    assert chosen(page) == "L0H3"
    page.go_back()
    assert chosen(page) is None
    page.go_forward()
    page.go_forward()
    assert chosen(page) == "L1H6"


@pytest.mark.parametrize("text", ["L1H6", "l1h6", " 1.6 "])
def test_search_finds_a_head_however_it_is_written(page: Watched, text: str) -> None:
    find(page, text)
    assert chosen(page) == "L1H6"


def test_search_says_that_there_is_no_such_head(page: Watched) -> None:
    find(page, "L9H9")
    assert "no such head" in page.locator(".search-note").inner_text()
    assert page.locator(".search").get_attribute("aria-invalid") == "true"
    assert chosen(page) is None


def test_everything_can_be_done_with_the_keyboard(page: Watched) -> None:
    page.keyboard.press("/")
    page.keyboard.type("L0H3")
    page.keyboard.press("Enter")
    assert chosen(page) == "L0H3"
    assert "card-title" in page.evaluate("document.activeElement.className")
    page.keyboard.press("ArrowRight")
    assert chosen(page) == "L0H4"
    page.keyboard.press("ArrowUp")
    assert chosen(page) == "L1H4"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.card') !== null")
    page.keyboard.press("Escape")
    assert chosen(page) is None
    assert "search" in page.evaluate("document.activeElement.className")


def test_the_diagram_is_walked_with_arrow_keys(page: Watched) -> None:
    page.locator(".wires").first.focus()
    page.keyboard.press("ArrowRight")
    assert chosen(page) == OVERVIEW
    page.keyboard.press("ArrowRight")
    assert chosen(page) == "L0H4"
    page.keyboard.press("Enter")
    assert "card-title" in page.evaluate("document.activeElement.className")


def test_a_figure_is_reached_by_tab_and_opened_by_enter(page: Watched) -> None:
    go_to(page, "similarity-map-of-heads")
    page.locator("#similarity-map-of-heads .figure-head button").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "Map of heads"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert chosen(page) == "L0H0"


def save(page: Watched, script: str) -> str:
    """What a click saves, as text."""
    with page.expect_download() as waiting:
        page.evaluate(script)
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def clicked(selector: str) -> str:
    return f"document.querySelector({selector!r}).click()"


def test_pairs_are_saved_digit_for_digit(page: Watched) -> None:
    result = headspan.affinity("demo")
    rows = table(save(page, clicked("[data-csv=pairs]")))
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


def test_exactly_what_is_drawn_is_saved(page: Watched) -> None:
    page.look_at("pairing=OK&min=8")
    drawn = {(arrow["src"], arrow["dst"]) for arrow in page.evaluate(ARROWS)}
    rows = table(save(page, clicked("[data-save=csv]")))
    assert {(row["src"], row["dst"]) for row in rows} == drawn
    assert all(float(row["projection_kernel"]) >= 8 for row in rows)
    graph = ElementTree.fromstring(save(page, clicked("[data-save=graphml]")))
    spaces = {"g": "http://graphml.graphdrawing.org/xmlns"}
    assert {(edge.get("source"), edge.get("target")) for edge in graph.findall(".//g:edge", spaces)} == drawn
    picture = ElementTree.fromstring(save(page, clicked("[data-save=svg]")))
    names = {
        path.get("data-edge") for path in picture.iter("{http://www.w3.org/2000/svg}path") if path.get("data-edge")
    }
    assert names == {f"{src}-{dst}-OK" for src, dst in drawn}
    with page.expect_download() as waiting:
        page.evaluate(clicked("[data-save=png]"))
    assert Path(waiting.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_figure_of_heads_is_saved_digit_for_digit(page: Watched) -> None:
    result = headspan.similarity("demo", distance="chordal").dataset()
    rows = table(save(page, clicked("#similarity-distances-within-layers .figure-head button")))
    assert len(rows) == result["layer_distance"].size
    for row in rows:
        here = result.sel(head=row["head"]).isel(peer=int(row["peer"]))
        for name in ("layer_distance", "layer_distance_null", "layer_distance_z"):
            value = float(here[name])
            assert row[name] == "" if np.isnan(value) else float(row[name]) == value
        assert row["head"] == f"L{row['head_layer']}H{row['head_index']}"


def test_a_figure_without_a_table_is_saved_as_drawn(page: Watched) -> None:
    figure = "#spectra-singular-values-and-the-law-of-random-matrices"
    rows = table(save(page, clicked(f"{figure} .figure-head button")))
    assert {row["trace"] for row in rows} >= {"this matrix", "random matrix, scale of the bulk"}
    assert {row["panel"] for row in rows if row["panel"].startswith("W Q")}
    assert all(float(row["x"]) >= 0 for row in rows)


def test_a_page_without_pairs_still_shows_heads(browser: Browser, tmp_path: Path) -> None:
    file = write_page(tmp_path / "one.html", "one layer", HeadGrid([0], 1, 1), [random_detection(1, 1)])
    with opened(browser, file, "at=detect-detector-scores&head=0.0") as page:
        page.settle()
        assert chosen(page) == "L0H0"
        assert "Induction score" in page.locator(".card").inner_text()
        assert page.locator(".wires").count() == 0
        assert page.complaints == []
