"""Asking again: which answers say "not now", how long to wait, and when to give up."""

from __future__ import annotations

import time

from huggingface_hub.utils import parse_ratelimit_headers

from headspan.checkpoint.hub.connection import Answer
from headspan.checkpoint.hub.failures import Interrupted, given_up
from headspan.checkpoint.hub.patience import Patience, retry_after
from headspan.errors import HubError

LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


class Attempts:
    """Counts failures in a row, waits between them, and gives up."""

    def __init__(self, patience: Patience, what: str, host: str) -> None:
        self.patience, self.what, self.host = patience, what, host
        self.failures = self.spent = 0

    def failed(self, problem: Interrupted, progress: int = 0) -> None:
        """Wait for the next attempt, or raise if there is none."""
        if progress >= self.patience.progress:
            self.failures = self.spent = 0
        self.failures += 1
        # Where nothing answers at all, asking five times only makes the user wait.
        self.spent += 1 if problem.connected else 2
        if self.spent >= self.patience.attempts:
            raise given_up(self.what, self.host, problem) from None
        wait = self.patience.wait_after(self.failures)
        if problem.wait is not None and problem.wait > self.patience.longest_wait:
            raise HubError(f"{self.host} asks to wait {problem.wait:.0f} s before {self.what} is read; try again then")
        time.sleep(wait if problem.wait is None else problem.wait)


def check_put_off(answer: Answer) -> None:
    """Raise `Interrupted` where a server says: not now."""
    if answer.status in LATER:
        limit = parse_ratelimit_headers(answer.headers)
        used_up = limit is not None and limit.remaining == 0
        # Bounded before it becomes a float: the header may hold a number of a thousand digits.
        wait = float(min(limit.reset_in_seconds, 10**9)) if limit and used_up else retry_after(answer.headers)
        raise Interrupted(f"it answered {answer.status}", wait=wait)
