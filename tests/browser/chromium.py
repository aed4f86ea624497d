"""A real browser without a window, and pages opened in it that are watched: what they complain of, what they ask for.

One browser serves all tests of a worker. Every page has a context of its own that is offline, and whatever is asked of
the network is refused and remembered.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
)
NO_HOST = "--host-resolver-rules=MAP * ~NOTFOUND"
LOOPBACK_ALONE = f"{NO_HOST} , EXCLUDE 127.0.0.1"


def browser_path() -> str:
    """Where the browser is; the test is skipped where there is none."""
    found = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no chromium on this machine (set BROWSER_PATH)")
    return found


@contextmanager
def running_browser(hosts: str = NO_HOST) -> Iterator[Browser]:
    """Chromium, until the block ends; it finds no host, or this machine alone."""
    path = browser_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, hosts])
        yield browser
        browser.close()


@dataclass
class Watched:
    """An opened page and what it did that it should not."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def settle(self) -> None:
        """Wait until the figures near the window are drawn as the view wants them."""
        self.page.wait_for_function(SETTLED)

    def look_at(self, fragment: str) -> None:
        """Go to a view as if its address had been typed, without loading the page again."""
        self.page.evaluate(
            "(hash) => { history.replaceState(null, '', `#${hash}`); dispatchEvent(new PopStateEvent('popstate')); }",
            fragment,
        )
        self.settle()

    def fragment(self) -> str:
        """What stands after `#` in the address."""
        return str(self.page.evaluate("location.hash.slice(1)"))


SETTLED = """() => headspan.figures.idle() && (headspan.frames?.idle() ?? true)
  && !headspan.figures.all.some((figure) => {
  const box = figure.getBoundingClientRect();
  const near = box.bottom > 0 && box.top < innerHeight && figure.checkVisibility();
  return near && (headspan.figures.box(figure).dataset.drawn !== 'yes' || 'stale' in figure.dataset);
})"""


@contextmanager
def opened(
    browser: Browser, file: Path, fragment: str = "", width: int = 1440, height: int = 1000, **options: Any
) -> Iterator[Watched]:
    """Open a file from the disk with the network blocked.

    Parameters
    ----------
    browser
        A running browser.
    file, fragment
        The page, and what follows `#` in its address.
    width, height
        Of the window, in pixels.
    options
        More options of the context, such as `color_scheme`.
    """
    context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True, **options)
    context.set_offline(True)
    # A busy machine is slow, not broken.
    context.set_default_timeout(90_000)
    watched = Watched(context.new_page())
    watched.page.on("console", lambda message: watched.complaints.append(f"{message.type}: {message.text}"))
    watched.page.on("pageerror", lambda problem: watched.complaints.append(f"error: {problem}"))
    watched.page.on("dialog", lambda dialog: _refused(watched, dialog))
    address = file.resolve().as_uri()
    watched.page.on("request", lambda request: _noted(watched, request.url, address))
    try:
        watched.page.goto(f"{address}#{fragment}" if fragment else address)
        watched.page.evaluate("globalThis.headspanReady")
        yield watched
    finally:
        context.close()


def _refused(watched: Watched, dialog: Dialog) -> None:
    """No page of ours opens a dialog; one that does has run something it should have shown."""
    watched.complaints.append(f"{dialog.type}: {dialog.message}")
    dialog.dismiss()


def _noted(watched: Watched, url: str, address: str) -> None:
    """Remember what the page asks for besides its own file; data and blobs are inside the page already."""
    if not url.startswith((address, "data:", "blob:")):
        watched.requests.append(url)
