"""A model with several stacks: one page with a switch, each stack with its own diagram, card and chapters."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.reports import Settings, reported_stacks, write_report
from tests.browser.chromium import opened
from tests.browser.page_elements import asks_nothing, page_elements
from tests.families.test_stacks import named
from tests.unit.test_report import only


@pytest.mark.slow
def test_every_stack_is_on_the_page_and_one_is_shown(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "affinity", "ranks")
    model = headspan.open(named("t5").model())
    assert reported_stacks(model, Settings()) == ["encoder", "decoder", "cross"]
    assert reported_stacks(model, Settings(stack="cross")) == ["cross"]
    file = write_report(model, tmp_path / "t5.html")
    html = file.read_text(encoding="utf-8")
    assert asks_nothing(html)
    identifiers = [found.attributes["id"] for found in page_elements(html) if "id" in found.attributes]
    assert len(set(identifiers)) == len(identifiers)
    with opened(browser, file) as page:
        assert page.locator(".stacks a").all_inner_texts() == ["encoder", "decoder", "cross"]
        assert page.locator("[data-explorer]:visible").get_attribute("data-stack") == "encoder"
        page.locator("[data-explorer]:visible .node[data-head=L1H2]").click()
        page.locator(".stacks a", has_text="decoder").click()
        page.wait_for_selector("[data-stack=decoder] [data-card]")
        assert page.locator("[data-explorer]:visible").get_attribute("data-stack") == "decoder"
        page.locator("[data-explorer]:visible .node[data-head=L0H1]").click()
        assert page.fragment() == "stack=decoder&head=L0H1"
        page.go_back()
        page.go_back()
        page.wait_for_selector("[data-stack=encoder] [data-card=L1H2]:visible")
        assert page.complaints == []
    with opened(browser, file, "stack=decoder&head=L0H1") as page:
        assert page.locator("[data-explorer]:visible [data-card]").get_attribute("data-card") == "L0H1"
