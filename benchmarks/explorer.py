"""The report as a reader meets it, measured in chromium: how soon it paints, how soon it answers, how large it is.

- GPT-2's attention (144 heads): size; first contentful paint; from opening to the first click answered; from a click on
  a node to its card and diagram; from a filter to the diagram; the longest task while scrolling, at once after opening
  and with figures drawn ahead.
- A page of 1,024 heads with 2,000 edges drawn: size, and the most that a frame takes of clicks, of filters, of another
  range of layers and of both scores side by side, until all is drawn.

GPT-2's page is made first, unless it is given as the argument; `benchmarks.report` measures what that takes.

Pages are opened several times. Times on the clock end with the frame after the change and grow with whatever else the
machine does, so the load is printed. Work is processor time of the main thread; a task is what the browser does without
a pause, measured by its own trace. A frame is all tasks after one painting, up to and with the next.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from benchmarks.measure import models_folder
from benchmarks.report import report_cost
from headspan.explorer.payload import HeadGrid
from tests.browser.chromium import Watched, opened, running_browser
from tests.browser.synthetic_page import write_page
from tests.browser.synthetic_results import random_affinity, random_detection, random_similarity
from tests.browser.test_large_report import Meter

REPETITIONS = 3
SIZE = {"width": 1440, "height": 900}
CLICK = """async (label) => {
  const node = document.querySelector(`.node[data-head=${label}] rect`).getBoundingClientRect();
  const at = {clientX: node.x + node.width / 2, clientY: node.y + node.height / 2, bubbles: true};
  // As of a person: figures are drawn ahead only while nothing is touched.
  document.querySelector('.wires').dispatchEvent(new PointerEvent('pointerdown', at));
  const start = performance.now();
  document.querySelector('.wires').dispatchEvent(new MouseEvent('click', at));
  if (document.querySelector('[data-card]').dataset.card !== label) throw new Error(label);
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}"""
SET = """async (changes) => {
  const start = performance.now();
  headspan.state.set(changes);
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}"""
DRAWN = """async () => {
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  do await painted(); while (!(headspan.frames.idle() && headspan.figures.idle()));
  await painted();
}"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
AHEAD = (
    "() => headspan.figures.all.every((each) => !each.checkVisibility() || headspan.figures.box(each).dataset.drawn)"
)
SCROLL = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += 300) {
    scrollTo(0, y);
    await new Promise((done) => setTimeout(done, 80));
  }
}"""
TASKS = ("RunTask", "ThreadControllerImpl::RunTask")


def main(page: Path | None = None) -> None:
    """Print every figure with its target."""
    with tempfile.TemporaryDirectory() as name, running_browser() as browser:
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        if page is None:
            page = Path(name) / "gpt2.html"
            report_cost(models_folder() / "gpt2-attention", page)
        print(f"size, 144 heads: {page.stat().st_size / 1e6:.1f} MB (target 8)")
        _openings(browser, page)
        _clicks(browser, page)
        _scrolling(browser, page)
        large = _large_page(Path(name) / "large.html")
        print(f"size, 1,024 heads: {large.stat().st_size / 1e6:.1f} MB (target 15)")
        _large(browser, large)
        print(f"load of the machine: {os.getloadavg()[0]:.1f}")


def _openings(browser: Browser, file: Path) -> None:
    paints, answers = [], []
    for _ in range(REPETITIONS):
        with opened(browser, file, **SIZE) as page:
            answers.append(page.evaluate("performance.now()") + page.evaluate(CLICK, "L4H11"))
            paints.append(page.evaluate(PAINT))
    print(f"first contentful paint: {_range(paints)} (target 500)")
    print(f"opening to first click answered: {_range(answers)} (target 1500)")


def _clicks(browser: Browser, file: Path) -> None:
    clicks, work, filters = [], [], []
    for _ in range(REPETITIONS):
        with opened(browser, file, **SIZE) as page:
            for label in (f"L{layer}H{head}" for layer in range(12) for head in (0, 5, 11)):
                clicks.append(_worked(page, work, CLICK, label))
            page.evaluate("headspan.state.set({head: null})")
            changes: list[dict[str, Any]] = [{"pairings": [name]} for name in ("OQ", "OK", "OV")]
            changes += [{"q": q} for q in (0.01, 0.001, 1e-6)]
            filters += [page.evaluate(SET, change) for change in changes]
    worst = statistics.quantiles(clicks, n=20)[-1]
    print(f"click to card: median {statistics.median(clicks):.0f} ms, 95th percentile {worst:.0f} (targets 100, 200)")
    print(f"  work of the main thread: median {statistics.median(work):.0f} ms, most {max(work):.0f}")
    print(f"filter to diagram: median {statistics.median(filters):.0f} ms, longest {max(filters):.0f} (target 100)")


def _worked(page: Watched, work: list[float], script: str, argument: object) -> float:
    """The clock's milliseconds of a script; those of the main thread's processor are added to `work`."""
    meter = Meter(page)
    before = meter.seconds()
    clock = float(page.evaluate(script, argument))
    work.append(1000 * (meter.seconds() - before))
    meter.session.detach()
    return clock


def _scrolling(browser: Browser, file: Path) -> None:
    for words, ahead in (("at once after opening", False), ("figures drawn ahead", True)):
        longest = []
        for _ in range(REPETITIONS):
            with opened(browser, file, **SIZE) as page:
                if ahead:
                    page.wait_for_function(AHEAD)
                longest.append(_longest_task(browser, page, lambda page=page: (page.evaluate(SCROLL), page.settle())))
        print(f"scrolling, {words}: longest task {_tasks(longest)} (target 200)")


def _large(browser: Browser, file: Path) -> None:
    actions: dict[str, tuple[str, Any]] = {
        "first click": (CLICK, "L4H3"),
        "next click": (CLICK, "L6H3"),
        "nothing chosen": (SET, {"head": None}),
        "one pairing": (SET, {"pairings": ["OK"]}),
        "all pairings": (SET, {"pairings": ["OQ", "OK", "OV"]}),
        "q": (SET, {"q": 0.1}),
        "any q": (SET, {"q": None}),
        "score": (SET, {"min": 1.2}),
        "any score": (SET, {"min": None}),
        "a range of layers": (SET, {"layers": [3, 20]}),
        "all layers": (SET, {"layers": [0, 31]}),
        "side by side": (SET, {"beside": True}),
        "a click side by side": (CLICK, "L4H3"),
        "its pairs out": (SET, {"way": "out"}),
    }
    longest: dict[str, list[tuple[float, float]]] = {}
    for _ in range(REPETITIONS):
        with opened(browser, file, "tier=strong,out,background", **SIZE) as page:
            page.settle()
            edges = page.locator(".edge").count()
            for name, (script, argument) in actions.items():
                page.wait_for_function(AHEAD)
                with _traced(browser, page) as events:
                    page.evaluate(script, argument)
                    page.evaluate(DRAWN)
                longest.setdefault(name, []).append(_longest_frame(events))
    for name, frames in longest.items():
        print(f"1,024 heads, {edges:,} edges, {name}: longest frame {_tasks(frames)} (target 50)")


def _longest_task(browser: Browser, page: Watched, action: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of the main thread's longest task during an action: on the clock, and of the processor."""
    with _traced(browser, page) as events:
        action()
    tasks = _main_tasks(events)
    return max(one["dur"] for one in tasks) / 1000, max(one.get("tdur", 0) for one in tasks) / 1000


def _longest_frame(events: list[dict[str, Any]]) -> tuple[float, float]:
    """The most milliseconds that the main thread works for one frame: on the clock, and of the processor."""
    paintings = [one["ts"] for one in events if one["name"] == "Commit"]
    clock, work, longest = 0.0, 0.0, [(0.0, 0.0)]
    for task in _main_tasks(events):
        clock, work = clock + task["dur"] / 1000, work + task.get("tdur", 0) / 1000
        if any(task["ts"] <= painting < task["ts"] + task["dur"] for painting in paintings):
            longest.append((clock, work))
            clock = work = 0.0
    return max(one for one, _ in longest), max(one for _, one in longest)


def _main_tasks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks of the page's main thread in their order, without those inside others."""
    named = [event for event in events if event["name"] == "thread_name"]
    mains = {(each["pid"], each["tid"]) for each in named if each["args"]["name"] == "CrRendererMain"}
    found: list[dict[str, Any]] = []
    ours = [one for one in events if one["name"] in TASKS and (one["pid"], one["tid"]) in mains and "dur" in one]
    for task in sorted(ours, key=lambda one: (one["ts"], -one["dur"])):
        if not found or task["ts"] >= found[-1]["ts"] + found[-1]["dur"]:
            found.append(task)
    return found


@contextmanager
def _traced(browser: Browser, page: Watched) -> Iterator[list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    browser.start_tracing(
        page=page.page, categories=["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
    )
    yield events
    events += json.loads(browser.stop_tracing())["traceEvents"]


def _range(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ms (of {len(values)}: {min(values):.0f} to {max(values):.0f})"


def _tasks(longest: list[tuple[float, float]]) -> str:
    clock, work = (list(each) for each in zip(*longest, strict=True))
    return f"{_range(work)} of processor time, {_range(clock)} on the clock"


def _large_page(path: Path) -> Path:
    shape = (32, 32, 8)
    results = [random_affinity(*shape), random_similarity(*shape), random_detection(*shape[:2])]
    return write_page(path, "synthetic", HeadGrid(range(shape[0]), *shape[1:]), results)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
