"""The report of a model with 1,024 heads: small enough to open, quick to answer, honest about what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from headspan.explorer.page_tables import pair_table
from headspan.explorer.payload import STRONGEST_PAIRS, HeadGrid
from headspan.lenses.affinity.wiring import edges
from headspan.result import Result
from tests.browser.chromium import Watched, opened
from tests.browser.synthetic_page import write_page
from tests.browser.synthetic_results import random_affinity, random_detection, random_similarity

SHAPE = (32, 32, 8)
MOST_BYTES = 15_000_000
MOST_WORK = 3.0
"""Seconds of the main thread for the first interaction."""
MOST_NODES = 60_000


@pytest.fixture(scope="module")
def affinity_result() -> Result:
    return random_affinity(*SHAPE)


@pytest.fixture(scope="module")
def large_report(affinity_result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = [affinity_result, random_similarity(*SHAPE), random_detection(*SHAPE[:2])]
    path = tmp_path_factory.mktemp("large") / "large.html"
    return write_page(path, "synthetic", HeadGrid(range(SHAPE[0]), *SHAPE[1:]), results)


@pytest.fixture(scope="module")
def page(browser: Browser, large_report: Path) -> Iterator[Watched]:
    with opened(browser, large_report) as page:
        yield page


class Meter:
    """Seconds that a page's main thread has worked since the meter was made: CPU time, not time on the wall."""

    def __init__(self, page: Watched) -> None:
        self.session = page.context.new_cdp_session(page.page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self) -> float:
        metrics = {each["name"]: each["value"] for each in self.session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"])


def test_the_page_is_small_enough(large_report: Path) -> None:
    assert large_report.stat().st_size < MOST_BYTES


def test_the_first_interaction_takes_little_work(page: Watched) -> None:
    page.wait_for_function("headspan.figures.idle()")
    meter = Meter(page)
    page.look_at("head=L10K3")
    assert page.locator("[data-card=L10K3]").count() == 1
    assert page.locator(".node[data-head]").count() == 32 * 32 + 32 * 8
    assert 0.01 < meter.seconds() < MOST_WORK


@pytest.mark.slow
def test_everything_drawn_stays_within_reason(page: Watched) -> None:
    page.evaluate("headspan.figures.drawAll()")
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_NODES
    assert page.complaints == []
    assert page.requests == []


PORTIONS = """async (changes) => {
  const counts = [];
  // What is written without a pause arrives at once: one call for every portion.
  const watcher = new MutationObserver((records) => counts.push(new Set(records.flatMap((each) => (
    [...each.addedNodes, each.target])).map((each) => each.closest?.('.node, .edge')).filter(Boolean)).size));
  const options = {childList: true, attributes: true, subtree: true};
  for (const each of document.querySelectorAll('.wires')) watcher.observe(each, options);
  headspan.state.set(changes);
  do await new Promise((done) => setTimeout(done, 20)); while (!headspan.frames.idle());
  watcher.disconnect();
  return counts;
}"""
DRAWN = (
    "(place) => [...document.querySelectorAll('.canvas')[place].querySelectorAll('.edge')].map((e) => e.dataset.edge)"
)


def test_many_arrows_and_nodes_are_drawn_in_portions_and_in_order(page: Watched) -> None:
    page.look_at("tier=strong,out,background")
    for changes in ({"layers": [3, 20]}, {"layers": [0, 31], "beside": True}, {"pairings": ["OK"]}):
        portions = page.evaluate(PORTIONS, changes)
        assert sum(portions) > page.evaluate("headspan.frames.MOST") * 2
        # One more for each diagram may be written when a portion is used up.
        assert max(portions) <= page.evaluate("headspan.frames.MOST") + 2
    wanted = page.evaluate("headspan.wiring.edges().map((edge) => `${edge.src}-${edge.dst}-${edge.pairing}`)")
    assert len(wanted) == 2000
    for place in (0, 1):
        # Both scores are the same numbers here.
        assert page.evaluate(DRAWN, place) == wanted, "weakest first, so that the strongest are in front"
    assert page.locator(".canvas >> nth=1").locator(".node").count() == 32 * 32 + 32 * 8


def test_no_arrow_and_no_node_is_a_layer_of_its_own(page: Watched) -> None:
    """Opacity or a transform of an element would make the browser compose each by itself, 50 ms for a click."""
    page.look_at("head=L10K3&tier=strong,out,background")
    assert page.locator(".edge").count() == 2000
    assert page.locator(".edge[opacity], .node[transform], .node [transform]").count() == 0


def test_the_page_says_what_it_leaves_out_and_how_to_have_it(page: Watched) -> None:
    assert "headspan affinity synthetic -o pairs.nc" in str(page.locator("#downloads .note").text_content())
    assert "strongest pairs" in page.locator(".card").inner_text()


def test_the_strongest_pairs_of_each_pairing_and_score_are_there(affinity_result: Result) -> None:
    table = pair_table(affinity_result, STRONGEST_PAIRS)
    assert len(table) <= STRONGEST_PAIRS
    for name in ("projection_kernel", "composition_score"):
        best = edges(affinity_result, "OK", name, top=800)
        own = table[table["pairing"] == "OK"].nlargest(800, name)
        assert np.array_equal(np.sort(best["score"]), np.sort(own[name]))
        assert set(zip(best["src"], best["dst"], strict=True)) <= set(zip(own["src"], own["dst"], strict=True))


def test_kv_heads_have_a_panel_and_lead_to_their_readers(page: Watched) -> None:
    page.look_at("head=L10K3")
    readers = page.locator(".card a.head", has_text="L10H")
    assert [readers.nth(i).inner_text() for i in range(4)] == ["L10H12", "L10H13", "L10H14", "L10H15"]
    page.locator(".card a.head", has_text="L10H12").click()
    assert page.locator(".card-title").inner_text() == "L10H12"
    assert page.locator(".card a.head", has_text="L10K3").count() >= 1


MOVED = """async () => {
  const {figures, state} = headspan;
  const figure = figures.all.find((each) => each.id === 'affinity-kernel-against-composition-score');
  const place = figures.box(figure), [Plotly] = await figures.ready();
  const drawn = async (layers) => {
    state.set({layers});
    await figures.draw(figure);
    const spots = [...place.querySelectorAll('.point')].map((each) => each.getAttribute('transform'));
    const axes = ['xaxis', 'yaxis', 'xaxis3'].map((name) => place._fullLayout[name].range.join());
    return JSON.stringify([spots, axes, place.data.map((trace) => Array.from(trace.y))]);
  };
  await figures.draw(figure);
  const stored = JSON.stringify(figures.spec(figure).data), found = {};
  const react = Plotly.react;
  let whole = 0;
  Plotly.react = (...all) => { whole++; return react(...all); };
  try {
    found.some = await drawn([3, 20]);
    found.all = await drawn([0, 31]);
    found.moved = whole === 0;
    await react(place, [], {});
    figures.print();
    found.anew = await drawn([0, 31]);
    found.again = await drawn([3, 20]);
  } finally { Plotly.react = react; }
  found.kept = JSON.stringify(figures.spec(figure).data) === stored;
  state.set({layers: [0, 31]});
  return found;
}"""


def test_points_that_are_thinned_out_over_a_map_are_moved_not_drawn_anew(page: Watched) -> None:
    page.look_at("")
    page.settle()
    found = page.evaluate(MOVED)
    assert found["moved"]
    assert found["some"] != found["all"]
    assert found["all"] == found["anew"]
    assert found["some"] == found["again"]
    assert found["kept"], "what is stored stays as it is"
    assert page.complaints == []
