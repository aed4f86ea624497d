"""The page of a comparison in a real browser: it asks for nothing, and a head's drift is one search away."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import headspan
from headspan.explorer.compare_page import write_compare_page
from tests.browser.chromium import opened
from tests.unit.test_drift import gpt2, noisy


@pytest.mark.slow
def test_a_head_can_be_looked_at_and_its_numbers_saved(browser: Browser, tmp_path: Path) -> None:
    result = headspan.compare(gpt2(), gpt2(noisy), draws=3)
    path = tmp_path / "diff.html"
    write_compare_page(result, path)
    heads = result.table("heads")
    row = heads.query("head == 'L1H2' and role == 'Q'").iloc[0]
    with opened(browser, path) as page:
        page.locator(".search").fill("L1H2")
        page.locator(".search").press("Enter")
        page.settle()
        assert page.locator(".card-title").inner_text() == "L1H2"
        panel = page.locator(".card").inner_text()
        assert "Query space moved" in panel
        assert f"{row['grassmann']:.3g}" in panel
        with page.expect_download() as saved:
            page.evaluate("document.querySelector('[data-csv=compare-heads]').click()")
        text = Path(saved.value.path()).read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
        assert [each["head"] for each in rows] == list(heads["head"].fillna(""))
        assert float(rows[0]["grassmann"]) == heads["grassmann"][0]
        assert page.complaints == []
        assert page.requests == []
