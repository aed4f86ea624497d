"""The diagram's controls and the parts of a card: tiers, ways, other nodes, sets, paths, words, channels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.payload import HeadGrid
from headspan.heads.classes import HeadClasses
from headspan.result import Result
from tests.browser.chromium import Watched, opened
from tests.browser.synthetic_page import write_page
from tests.browser.synthetic_results import random_affinity

EDGES = """() => [...document.querySelectorAll('.edge')].map((edge) => ({ends: edge.dataset.edge.split('-'),
  tier: edge.dataset.tier, width: +edge.getAttribute('stroke-width'),
  opacity: +edge.getAttribute('stroke-opacity')}))"""
OWN = "() => [...document.querySelectorAll('.own .edge')].map((edge) => edge.dataset.edge.split('-'))"
ON_TOP = """() => [...document.querySelectorAll('.node')].filter((node) => {
  const box = node.querySelector('rect').getBoundingClientRect();
  const at = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return at?.closest('.node') !== node;
}).map((node) => node.dataset.head)"""


@pytest.fixture(scope="module")
def opened_demo(browser: Browser, demo_report: Path) -> Iterator[Watched]:
    with opened(browser, demo_report) as page:
        yield page
        assert page.complaints == []


@pytest.fixture
def page(opened_demo: Watched) -> Watched:
    opened_demo.evaluate("document.activeElement?.blur(); scrollTo(0, 0); document.body.click()")
    opened_demo.look_at("")
    return opened_demo


@pytest.fixture(scope="module")
def deep_result() -> Result:
    return random_affinity(5, 4, 4)


@pytest.fixture(scope="module")
def deep(browser: Browser, deep_result: Result, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Five layers of four heads, so that a path has several pairs."""
    file = tmp_path_factory.mktemp("deep") / "deep.html"
    with opened(browser, write_page(file, "deep", HeadGrid(range(5), 4, 4), [deep_result])) as page:
        yield page
        assert page.complaints == []


def test_nodes_are_on_top_of_edges(page: Watched) -> None:
    assert page.locator(".edge").count() > 100
    assert page.evaluate(ON_TOP) == []


def test_what_stands_out_is_drawn_more_boldly_than_background(page: Watched) -> None:
    page.look_at("tier=strong,out,background")
    drawn = page.evaluate(EDGES)
    for quality in ("width", "opacity"):
        standing, background = (
            [edge[quality] for edge in drawn if edge["tier"] == tier] for tier in ("stands out", "background")
        )
        assert min(standing) > max(background)


def test_only_pairs_into_or_out_of_the_chosen_head_are_left(deep: Watched) -> None:
    deep.look_at("head=L2H1&tier=strong,out,background")
    every = {tuple(ends) for ends in deep.evaluate(OWN)}
    assert deep.locator(".edge").count() > len(every)
    deep.locator("label.choice", has_text="Into it").click()
    into = {tuple(edge["ends"]) for edge in deep.evaluate(EDGES)}
    deep.locator("label.choice", has_text="Out of it").click()
    out = {tuple(edge["ends"]) for edge in deep.evaluate(EDGES)}
    assert {dst for _, dst, _ in into} == {"L2H1"}
    assert {src for src, _, _ in out} == {"L2H1"}
    assert into | out == every


def test_embedding_mlps_and_logits_come_and_go_with_their_edges(page: Watched) -> None:
    nodes, edges = page.locator(".node").count(), page.locator(".edge").count()
    for kind in ("embedding", "mlp", "logits"):
        page.locator(f"label.choice[data-kind={kind}]").click()
        assert page.locator(f".node.{kind}").count() > 0
        page.locator(f".node.{kind}").first.click()
        label = page.locator(f".node.{kind}").first.get_attribute("data-head")
        assert page.locator("[data-card]").get_attribute("data-card") == label
        assert page.locator(".card .partners tbody tr").count() > 0
        page.keyboard.press("Escape")
    assert page.locator(".edge.more").count() > 0
    page.look_at("")
    assert (page.locator(".node").count(), page.locator(".edge").count()) == (nodes, edges)


def test_sets_are_read_from_a_csv_file(page: Watched, tmp_path: Path) -> None:
    file = tmp_path / "sets.csv"
    file.write_text('head,set\nL0H2,"mine"\n1.5,mine\nL9H9,mine\nL1H1,yours\n', encoding="utf-8")
    page.locator("summary", has_text="Sets").click()
    page.set_input_files("[aria-label='CSV file of sets']", file)
    page.wait_for_function("() => location.hash.includes('set=')")
    assert page.evaluate("headspan.state.get().sets") == {"mine": ["L0H2", "L1H5"], "yours": ["L1H1"]}
    colors = page.evaluate("""() => ['L0H2', 'L1H5', 'L1H1'].map((head) =>
      getComputedStyle(document.querySelector(`.node[data-head=${head}] rect`)).stroke)""")
    assert colors[0] == colors[1] != colors[2]


def test_a_set_of_most_heads_gives_way_to_a_rarer_one(browser: Browser, tmp_path: Path) -> None:
    most = tuple(f"L{layer}H{head}" for layer in range(3) for head in range(4))
    classes = HeadClasses({"common": most[:9], "rare": most[2:4]}, "made up")
    grid, result = HeadGrid(range(3), 4, 4), random_affinity(3, 4, 4)
    with opened(browser, write_page(tmp_path / "sets.html", "sets", grid, [result], classes=[classes])) as page:
        assert page.evaluate("headspan.sets.of('L0H2')") == ["rare", "common"]
        assert page.evaluate("headspan.sets.of('L0H1')") == ["common"]


def best_path(pairs: dict[tuple[str, str], float], src: str, dst: str) -> float:
    """The weakest pair of the best path, by trying all paths."""
    found = [pairs[src, dst]] if (src, dst) in pairs else []
    found += [
        min(strength, best_path(pairs, to, dst)) for (at, to), strength in pairs.items() if at == src and to != dst
    ]
    return max(found, default=0.0)


def test_a_path_is_the_one_whose_weakest_pair_is_strongest(deep: Watched, deep_result: Result) -> None:
    deep.look_at("path=L0H1-L4H2&tier=strong,out,background")
    table = deep_result.table()
    pairs = table.groupby(["src", "dst"])["projection_kernel"].max().to_dict()
    path = deep.evaluate("headspan.graph.path(headspan.wiring.edges(), ['L0H1', 'L4H2'])")
    assert [path[0]["src"], path[-1]["dst"]] == ["L0H1", "L4H2"]
    assert all(before["dst"] == after["src"] for before, after in pairwise(path))
    assert min(edge["score"] for edge in path) == pytest.approx(best_path(pairs, "L0H1", "L4H2"))
    assert len(path) > 1
    assert len(deep.evaluate(OWN)) == len(path)
    deep.locator("summary", has_text="Path").click()
    assert deep.locator(".menu-body [role=status]").inner_text().startswith("L0H1 → ")


def test_attention_can_be_seen_between_words(browser: Browser, tmp_path: Path, stories: Path) -> None:
    result = headspan.attention(stories, "Once upon a time there was a little girl named Lily.")
    file = write_page(tmp_path / "words.html", "stories", HeadGrid(range(5), 8, 4), [result])
    with opened(browser, file, "head=L1H2") as page:
        tokens = page.locator(".card .tokens span").count()
        page.locator(".card [data-level=token]").click()
        words = page.locator(".card .tokens span")
        assert 0 < words.count() < tokens
        assert {"little", "girl"} <= {text.strip() for text in words.all_inner_texts()}
        sums = page.evaluate(
            "headspan.maps.of(headspan.maps.all()[0], 'L1H2').values.map((line) => line.reduce((a, b) => a + b))"
        )
        assert sums == pytest.approx([1.0] * words.count(), abs=0.1)
        assert page.complaints == []


def test_the_chosen_head_is_marked_among_the_small_maps(page: Watched) -> None:
    page.look_at("at=attention&head=L1H6")
    marked = page.locator("[data-maps] .map-line .shade:visible")
    assert marked.count() == 1
    box, line = marked.bounding_box(), page.locator("[data-maps] canvas[data-layer='1']").bounding_box()
    assert box is not None
    assert line is not None
    assert (box["x"] + box["width"] / 2 - line["x"]) / line["width"] == pytest.approx(6.5 / 8, abs=0.02)


def test_a_card_has_tokens_and_a_pair_its_channels(page: Watched) -> None:
    page.look_at("head=L1H6&with=L0H3")
    card = page.locator(".card")
    assert "Tokens it reads and writes" in card.inner_text()
    assert card.locator(".token-line code").count() > 8
    channels = headspan.channels("demo").table()
    told = card.locator(".pair .pair-text").inner_text()
    assert "Channels between heads" in told
    assert ((channels["src"] == "L0H3") & (channels["dst"] == "L1H6")).any()
    assert "coupling" in told
    assert "expected" in told


def test_small_maps_are_numbered_and_wide_enough_to_be_seen(page: Watched) -> None:
    page.look_at("at=attention")
    line = page.locator("[data-maps] canvas[data-layer='0']").bounding_box()
    names = page.locator("[data-maps] .numbers b")
    assert names.all_inner_texts() == [f"H{head}" for head in range(8)]
    assert line is not None
    assert line["width"] / 8 > 55
    for head in (0, 7):
        name = names.nth(head).bounding_box()
        assert name is not None
        middle = (name["x"] + name["width"] / 2 - line["x"]) / line["width"]
        assert middle == pytest.approx((head + 0.5) / 8, abs=0.02)


def test_the_node_of_the_card_is_marked_until_a_head_is_chosen(page: Watched) -> None:
    card = page.locator("[data-card]").get_attribute("data-card")
    assert page.locator(".node.carded").evaluate_all("(all) => all.map((node) => node.dataset.head)") == [card]
    page.locator(".node[data-head=L1H2]").click()
    page.evaluate("headspan.frames.finish()")
    assert page.locator(".node.carded").count() == 0


def test_without_strong_pairs_the_largest_scores_are_drawn_widest(page: Watched) -> None:
    assert page.locator(".edge[data-tier=strong]").count() == 0
    scores = {
        f"{row['src']}-{row['dst']}-{row['pairing']}": row["projection_kernel"]
        for row in headspan.affinity("demo").table().to_dict("records")
    }
    widths = {"-".join(edge["ends"]): edge["width"] for edge in page.evaluate(EDGES)}
    ordered = sorted(widths, key=lambda edge: scores[edge])
    assert widths[ordered[-1]] > 3 * widths[ordered[0]]
    assert [widths[edge] for edge in ordered] == sorted(widths.values())


def test_bars_of_a_card_leave_the_numbers_beside_them_alone(page: Watched) -> None:
    """Neither a bar nor the tick of the expected value reaches the cell that the score is written in."""
    page.look_at("head=L1H6")
    beyond = """(marks) => marks.filter((mark) => mark.getBoundingClientRect().right
      > mark.closest('tr').querySelector('.value').getBoundingClientRect().left - 4).length"""
    marks = page.locator(".card .partners .score :is(i, b)")
    assert marks.count() > 10
    assert marks.evaluate_all(beyond) == 0


def test_panels_of_a_row_have_one_title_of_the_axis_before_the_first(page: Watched) -> None:
    """Five panels do not fit side by side: every row begins with the title."""
    page.look_at("at=detect-detector-scores")
    page.wait_for_selector("#detect-detector-scores .plot[data-drawn=yes]")
    titled = page.evaluate("""() => {
      const layout = document.querySelector('#detect-detector-scores .plot')._fullLayout;
      return Object.keys(layout).filter((key) => key.startsWith('yaxis')).map((key) => {
        const across = layout[`x${key.slice(1)}`].domain[0];
        const text = layout[key].title?.text ?? '';
        return [across > 0, text !== '' && !text.startsWith('Click to enter')];
      });
    }""")
    assert len(titled) == 5
    assert all(inner != has_title for inner, has_title in titled)
