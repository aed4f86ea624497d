"""Figures that sum up pairs are counted again over those that the filters leave: as if only these had been computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.payload import HeadGrid
from headspan.lenses.affinity.wiring import edges, hub_scores, ranked_hubs
from headspan.result import Result
from tests.browser.chromium import Watched, opened
from tests.browser.synthetic_page import write_page

BARS = """(id) => document.querySelector(`#${id} .plot`).data
  .map((trace) => ({meta: trace.meta, width: trace.width, x: Array.from(trace.x), y: Array.from(trace.y)}))"""


@pytest.fixture(scope="module")
def result(stories: Path) -> Result:
    return headspan.affinity(stories)


@pytest.fixture(scope="module")
def page(browser: Browser, result: Result, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    file = tmp_path_factory.mktemp("recounted") / "report.html"
    write_page(file, "stories", HeadGrid(tuple(range(5)), 8, 4), [result])
    with opened(browser, file, "") as shown:
        yield shown
        assert shown.complaints == []


def bars(page: Watched, figure: str, fragment: str) -> list[dict[str, list[float]]]:
    page.look_at(f"at={figure}&{fragment}")
    page.wait_for_selector(f"#{figure} .plot[data-drawn=yes]")
    page.settle()
    found: list[dict[str, list[float]]] = page.evaluate(BARS, figure)
    return found


def test_hubs_within_a_range_of_layers_are_those_of_these_layers_alone(page: Watched, stories: Path) -> None:
    alone = headspan.affinity(headspan.open(stories).heads(layers=range(1, 5)))
    expected = ranked_hubs(hub_scores(alone))
    expected = expected[expected["hub_score"] > 0].head(15)
    outlet, inlet = bars(page, "affinity-hubs", "layers=1-4")
    assert outlet["y"][::-1] == list(expected["head"])
    np.testing.assert_allclose(outlet["x"][::-1], expected["outlet"], rtol=1e-5)
    np.testing.assert_allclose(inlet["x"][::-1], expected["inlet"], rtol=1e-5)


def test_hubs_through_one_pairing_are_ranked_anew(page: Watched, stories: Path) -> None:
    alone = headspan.affinity(stories, pairings=["OV"])
    expected = ranked_hubs(hub_scores(alone))
    expected = expected[expected["hub_score"] > 0].head(15)
    outlet, _ = bars(page, "affinity-hubs", "pairing=OV")
    assert outlet["y"][::-1] == list(expected["head"])


def test_the_distribution_of_scores_is_that_of_the_pairs_left(page: Watched, result: Result) -> None:
    table = edges(result, "OQ")
    sources, readers = (table[side].str.extract(r"L(\d+)")[0].astype(int) for side in ("src", "dst"))
    kept = table["score"][(sources >= 1) & (readers <= 3)].to_numpy()
    traces = bars(page, "affinity-scores-and-their-nulls", "layers=1-3")
    (own,) = (each for each in traces if each["meta"] == {"pairing": "OQ", "counts": "projection_kernel"})
    middles, width = np.array(own["x"]), float(own["width"])
    cells = np.append(middles - width / 2, middles[-1] + width / 2)
    expected = np.histogram(kept, cells)[0] / len(kept) / width
    np.testing.assert_allclose([height or 0 for height in own["y"]], expected, atol=2.5 / len(kept) / width)
    assert sum(height or 0 for height in own["y"]) * width == pytest.approx(1)
    assert len(kept) < len(table)
