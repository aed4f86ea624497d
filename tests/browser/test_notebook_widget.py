"""The component as a notebook shows it: the module that anywidget loads, in a real browser, with Python behind it.

A stand-in for the notebook hands over traits and passes messages, as anywidget's contract says; the real JupyterLab is
driven in `test_jupyterlab.py`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.component import notebook_source, notebook_style
from headspan.explorer.widget import Exploration, trait_values
from tests.browser.chromium import Watched, opened

HOST = """async ({source, style, values}) => {
  const bytes = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  document.head.append(Object.assign(document.createElement('style'), {textContent: style}));
  const traits = {...values, archive: new DataView(bytes(values.archive).buffer), selected: '', selected_pair: []};
  const listeners = {};
  const model = {
    get: (name) => traits[name], set: (name, value) => { traits[name] = value; }, save_changes: () => {},
    on: (name, action) => { (listeners[name] ??= []).push(action); }, off: () => {},
    send: async (message) => {
      const [answer, packed] = JSON.parse(await window.ask(JSON.stringify(message.question)));
      const buffers = packed.map((each) => new DataView(bytes(each).buffer));
      for (const action of listeners['msg:custom']) action({number: message.number, answer}, buffers);
    },
  };
  globalThis.traits = traits;
  const module = await import(URL.createObjectURL(new Blob([source], {type: 'text/javascript'})));
  module.default.render({model, el: document.getElementById('cell')});
}"""


@pytest.fixture
def cell(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    exploration = Exploration(headspan.open("demo"), None, ["affinity", "attention"], progress=False)
    values = trait_values(*exploration.opened())
    values["archive"] = base64.b64encode(values["archive"]).decode()

    def ask(question: str) -> str:
        told, packed = exploration.answer(json.loads(question))
        return json.dumps([told, [base64.b64encode(each).decode() for each in packed]])

    file = tmp_path_factory.mktemp("notebook") / "cell.html"
    file.write_text("<!doctype html><h1>mine</h1><div id='cell'></div>")
    given: dict[str, Any] = {"source": notebook_source(), "style": notebook_style(), "values": values}
    with opened(browser, Path(file)) as page:
        page.expose_function("ask", ask)
        page.evaluate(HOST, given)
        page.wait_for_selector("[data-card]")
        yield page
        assert page.complaints == []
        assert page.requests == []


def test_the_same_diagram_and_card_are_shown(cell: Watched) -> None:
    assert cell.locator(".node[data-head]").count() == 16
    assert cell.locator("[data-card=L0H3]").count() == 1
    assert cell.locator(".card .tokens span").count() > 10


def test_a_selection_can_be_read_from_python(cell: Watched) -> None:
    cell.locator(".node[data-head=L1H6]").click()
    assert cell.evaluate("traits.selected") == "L1H6"
    cell.locator(".card .partners a.head").first.click()
    assert cell.evaluate("traits.selected") == "L0H3"


def test_a_new_prompt_shows_its_attention(cell: Watched) -> None:
    cell.fill("[aria-label=Prompt]", "abcabcabc")
    cell.locator(".live button", has_text="Run").click()
    cell.wait_for_function("document.querySelectorAll('.card .tokens span').length === 9")
    assert "Unchanged:" in cell.locator(".texts").inner_text()


def test_an_ablated_head_changes_the_text_and_the_patterns(cell: Watched) -> None:
    cell.fill("[aria-label=Prompt]", "abcabcabcabc")
    cell.fill(".search", "L0H3")
    cell.press(".search", "Enter")
    cell.locator(".card button", has_text="Ablate").click()
    cell.wait_for_function("document.querySelector('.texts').textContent.includes('L0H3 \\u00d7 0')")
    cell.fill(".search", "L1H6")
    cell.press(".search", "Enter")
    cell.locator(".card .tokens span").nth(8).hover()
    assert cell.locator(".card .map-note").inner_text()


def test_the_styles_leave_the_notebook_alone(cell: Watched) -> None:
    assert cell.evaluate("getComputedStyle(document.querySelector('h1')).fontSize") == "32px"
    assert cell.evaluate("getComputedStyle(document.body).margin") == "8px"
