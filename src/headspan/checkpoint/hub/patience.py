"""How long a server may take, how often it is asked again, and how long is waited in between."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass


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


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, if it says so in seconds."""
    text = headers.get("Retry-After", "").strip()
    return float(text) if text.isdecimal() and len(text) < 10 else None
