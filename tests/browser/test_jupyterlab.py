"""The widget in a real JupyterLab, driven as a person would: a cell is run, a head is clicked, Python reads it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.chromium import LOOPBACK_ALONE, running_browser

CELLS = (
    "import headspan\nwidget = headspan.explore('demo', lenses=['affinity', 'attention'], progress=False)\nwidget",
    "print('selected', widget.selected, widget.selected_pair)",
)


ON_EDGE = """(id) => {
  const edge = document.querySelector(`.headspan .edge[data-edge="${id}"]`);
  edge.scrollIntoView({block: 'center'});
  const [length, matrix] = [edge.getTotalLength(), edge.getScreenCTM()];
  const at = edge.getPointAtLength(length * 0.45).matrixTransform(matrix);
  return [at.x, at.y];
}"""


ANSWERED = "document.querySelector('.headspan .card .pair div div')?.textContent.includes('L0H3 → L1H6')"


def notebook() -> str:
    """A notebook with the cells, none of them run."""
    cells = [
        {"cell_type": "code", "id": f"cell{i}", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
        for i, text in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab on loopback that has the notebook."""
    if find_spec("jupyterlab") is None:
        pytest.skip("JupyterLab is not installed (pip install jupyterlab)")
    (tmp_path / "explore.ipynb").write_text(notebook())
    line = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
    line += [f"--ServerApp.root_dir={tmp_path}", "--IdentityProvider.token=", "--LabApp.news_url="]
    places = {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "RUNTIME")}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(line, stderr=log, stdout=log, env={**os.environ, **places})
        try:
            yield f"{_address(tmp_path / 'log', process)}lab/tree/explore.ipynb"
        finally:
            process.terminate()
            process.wait(30)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    for _ in range(600):
        found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
        if found:
            return found.group()
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    raise AssertionError(log.read_text())


@pytest.mark.slow
def test_a_head_clicked_in_jupyterlab_is_read_in_python(lab: str) -> None:
    # A thread can have one driver of browsers, and this one's may have that of the other tests.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(click_in_jupyterlab, lab).result()


def click_in_jupyterlab(lab: str) -> None:
    """Run the cells, click a head, and wait until Python has read it."""
    with running_browser(LOOPBACK_ALONE) as browser:
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(120_000)  # a server, a kernel and torch start on a busy machine
        page.goto(lab)
        cells = page.locator(".jp-Notebook .jp-CodeCell")
        cells.nth(1).wait_for()
        run_cell(page, cells.nth(0))
        page.locator(".headspan.notebook .node[data-head=L1H6]").click()
        page.locator("[data-card=L1H6]").wait_for()
        page.fill(".headspan [aria-label=Prompt]", "abcabcabc")
        page.locator(".headspan .live button", has_text="Run").click()
        page.wait_for_function("document.querySelectorAll('.headspan .card .tokens span').length === 9")
        run_cell(page, cells.nth(1))
        cells.nth(1).locator(".jp-OutputArea-output", has_text="selected L1H6").wait_for()
        page.locator(".headspan .card button", has_text="Ablate").click()
        page.locator(".headspan .texts", has_text="L1H6 \u00d7 0").wait_for()
        page.mouse.click(*page.evaluate(ON_EDGE, "L0H3-L1H6-OK"))
        page.locator(".headspan .card .pair button", has_text="Ask for this pair's channels").click()
        page.wait_for_function(ANSWERED)
        run_cell(page, cells.nth(1))
        cells.nth(1).locator(".jp-OutputArea-output", has_text="selected L1H6 ['L0H3', 'L1H6']").wait_for()


def run_cell(page: Page, cell: Locator) -> None:
    """Run a cell; JupyterLab forgets one that was run while its kernel connected, so a person presses again."""
    for _ in range(60):
        cell.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(2000)
        if cell.locator(".jp-InputPrompt").inner_text().strip() != "[ ]:":
            return
    raise AssertionError("the cell was not run")
