"""One browser for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import running_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running
