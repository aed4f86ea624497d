"""How long a server may take, how often it is asked again, and what the user is told when it is given up.

A read timeout bounds each silence, not their sum: looking up a name, or a server that sends its headers one byte at a
time, can take for ever. So an exchange begins in a thread of its own (`within`), which is left behind when time is up.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from headspan.errors import HubError

T = TypeVar("T")
OFFLINE = "the Hub may not be asked for what is not in the cache (HF_HUB_OFFLINE is set); unset it, or give a folder"
LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers that say: not now."""


@dataclass(frozen=True)
class Patience:
    """Limits on one read. All of them are finite, so that every read ends."""

    silence: float = 10.0
    """Longest time, in seconds, to connect or to hear nothing."""
    beginning: float = 30.0
    """Longest time until an answer begins: the host's name looked up, connected, headers complete."""
    attempts: int = 5
    """Failures in a row, without `progress` bytes in between, after which the read is given up."""
    progress: int = 256 * 1024
    first_wait: float = 0.5
    longest_wait: float = 30.0
    """Longest wait before another attempt; a server that asks for more is not waited for."""
    redirects: int = 5
    grace: float = 30.0
    """After this many seconds an answer must have kept up `slowest` bytes a second."""
    slowest: float = 1000.0

    def wait_after(self, failures: int) -> float:
        """Seconds before the next attempt: doubled each time, varied so that many readers do not return together."""
        return float(min(self.longest_wait, self.first_wait * 2 ** (failures - 1)) * random.uniform(0.75, 1.25))


PATIENCE = Patience()


class Unreachable(HubError):
    """No server answered; what is in the cache may serve instead."""


class NoSuchModel(HubError):
    """The Hub knows no model of that name, or does not show it to this user."""


class Interrupted(Exception):
    """An exchange that ended early or was put off; another attempt may succeed."""

    def __init__(self, reason: str, wait: float | None = None, connected: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.wait, self.connected = reason, wait, connected


def surrender(what: str, host: str, problem: Interrupted) -> HubError:
    """The last failure of several, as what the user is told."""
    if not problem.connected:
        return Unreachable(f"{host} cannot be reached ({problem.reason}); check the connection, or give a folder")
    return HubError(f"reading {what} from {host} failed again and again ({problem.reason}); try again to resume")


def refusal(status: int, headers: Mapping[str, str], repo: str, revision: str, name: str, host: str) -> HubError:
    """What an answer of the Hub with an error status means for the user."""
    code = headers.get("X-Error-Code", "")
    message = headers.get("X-Error-Message", "")
    if code == "GatedRepo":
        return HubError(
            f"'{repo}' is gated: accept its terms on its page at {host}, then log in with `hf auth login` (or HF_TOKEN)"
        )
    if code == "RevisionNotFound":
        return HubError(f"'{repo}' has no revision '{revision}'; its page at {host} lists its branches and tags")
    if code == "EntryNotFound":
        return HubError(
            f"'{repo}' at {revision:.12} has no file '{name}', though its list of files names it; try again later"
        )
    if status == 401 and "nvalid" in message:
        return HubError(f"{host} does not accept the token; log in again with `hf auth login`, or unset HF_TOKEN")
    if code == "RepoNotFound" or status in {401, 404}:
        return NoSuchModel(
            f"{host} has no model '{repo}' that you may see; check the name, or log in with `hf auth login`"
        )
    if status == 403:
        return HubError(f"{host} forbids reading '{repo}'; check that your token may read it (`hf auth whoami`)")
    return HubError(f"{host} answered {status} for '{repo}'; try again later")


def ignores_ranges(host: str, name: str, size: int, repo: str) -> HubError:
    return HubError(
        f"{host} ignores byte ranges and would send all {size / 1e9:.1f} GB of '{name}'; "
        f"download the model (`hf download {repo}`) and open it again"
    )


def wrong_bytes(host: str, name: str, found: str, asked: str) -> HubError:
    return HubError(f"{host} answered {found} of '{name}' where {asked} was asked for; the answer cannot be trusted")


def not_the_hub(host: str, found: str) -> HubError:
    return HubError(f"{host} does not answer like the Hub ({found}); check HF_ENDPOINT, a proxy or a login page")


class Attempts:
    """Counts failures in a row, waits between them, and gives up."""

    def __init__(self, patience: Patience, what: str, host: str) -> None:
        self.patience, self.what, self.host = patience, what, host
        self.failures = self.spent = 0

    def wait(self, problem: Interrupted, progress: int = 0) -> None:
        """Wait for the next attempt, or raise if there is none."""
        if progress >= self.patience.progress:
            self.failures = self.spent = 0
        self.failures += 1
        # Where nothing answers at all, asking five times only makes the user wait.
        self.spent += 1 if problem.connected else 2
        if self.spent >= self.patience.attempts:
            raise surrender(self.what, self.host, problem) from None
        if problem.wait is not None and problem.wait > self.patience.longest_wait:
            raise HubError(f"{self.host} asks to wait {problem.wait:.0f} s before {self.what} is read; try again then")
        time.sleep(self.patience.wait_after(self.failures) if problem.wait is None else problem.wait)


def within(seconds: float, action: Callable[[], T], discard: Callable[[T], None]) -> T:
    """What `action` returns or raises, or a TimeoutError; a result that comes too late is given to `discard`."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = action()
        except BaseException as problem:  # noqa: BLE001 - it is raised where the result is waited for
            if future.set_running_or_notify_cancel():
                future.set_exception(problem)
            return
        if future.set_running_or_notify_cancel():
            future.set_result(result)
        else:
            discard(result)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(timeout=seconds)
    except BaseException:
        # Cancelling fails only if the result has just come.
        if not future.cancel() and future.done() and future.exception() is None:
            discard(future.result())
        raise
