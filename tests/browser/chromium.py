"""A page opened in a real browser without a window: what it became, what it complained of, what it asked for.

Chromium runs once per page. It prints the finished document, writes console messages to stderr and every request to a
net log. No name resolves, so that nothing leaves the machine; the browser's own requests (updates, clock) have no page
as their initiator and are left out.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--dump-dom",
)
DARK = "--blink-settings=preferredColorScheme=0"
NO_PAGE = "not an origin"
"""Initiator of a request that the browser makes on its own behalf."""


@dataclass(frozen=True)
class Opened:
    """What became of a page."""

    dom: str
    console: list[str]
    requests: list[str]
    answers: dict[str, str]
    """What scripts of the test left on the page, by name: see `opened`."""


def opened(page: Path, folder: Path, *flags: str, questions: dict[str, str] | None = None, seconds: int = 12) -> Opened:
    """Open a page and wait until its scripts have been quiet for `seconds` of its own time.

    Parameters
    ----------
    page
        The HTML file.
    folder
        Where the browser may write.
    flags
        More flags for the browser.
    questions
        JavaScript expressions by name, evaluated (and awaited) once all figures are drawn; the answers come as text.
    """
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium on this machine")
    if questions:
        page = _with_questions(page, folder, questions)
    log = folder / "net.json"
    command = [browser, *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}"]
    command += [f"--virtual-time-budget={1000 * seconds}", page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return Opened(
        dom=done.stdout,
        console=re.findall(r"^\[[^\]]*CONSOLE[^\]]*\] (.*)$", done.stderr, re.MULTILINE),
        requests=_page_requests(json.loads(log.read_text())),
        answers=dict(re.findall(r'<meta name="answer-([^"]*)" content="([^"]*)">', done.stdout)),
    )


def _with_questions(page: Path, folder: Path, questions: dict[str, str]) -> Path:
    """A copy of the page that answers the questions in `<meta>` elements."""
    asked = "".join(f"answer({json.dumps(name)}, await ({code}));" for name, code in questions.items())
    script = (
        "<script>(async () => {"
        "const pause = (ms) => new Promise((done) => setTimeout(done, ms));"
        "const answer = (name, content) => document.head.append("
        "Object.assign(document.createElement('meta'), {name: 'answer-' + name, content}));"
        "for (let i = 0; i < 100 && document.querySelector('.plot:not([data-drawn])'); i++) await pause(50);"
        f"{asked}}})();</script></body>"
    )
    copy = folder / "asked.html"
    copy.write_text(page.read_text().replace("</body>", script))
    return copy


def _page_requests(log: dict[str, object]) -> list[str]:
    """Addresses that the page, not the browser, asked for; the page's own file is not one of them."""
    events: list[dict[str, dict[str, str]]] = log["events"]  # type: ignore[assignment]
    asked = [event["params"] for event in events if "initiator" in event.get("params", {})]
    return [request["url"] for request in asked if request["initiator"] != NO_PAGE and "url" in request]
