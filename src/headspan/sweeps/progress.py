"""What a sweep shows while it runs: a bar where somebody watches, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headspan.progress import Step, duration, progress_bar, show_nothing

LINES = 20
"""About how many lines a whole sweep logs where nobody watches."""


@dataclass
class View:
    """Told of every outcome: moves the bar or says a line now and then, and says a line for every failure."""

    title: str
    total: int
    say: Callable[[str], None] | None
    bar: Step = show_nothing
    threads: int = 1
    done: int = 0
    failures: int = 0
    start: float = field(default_factory=time.monotonic)

    def ended(self, label: str, failed: str = "") -> None:
        """One more piece of work is over; `failed` says why it failed."""
        self.done, self.failures = self.done + 1, self.failures + bool(failed)
        self.show()
        if self.say is None:
            return
        if failed:
            self.say(f"{self.title}: {label} failed: {failed}")
        last = self.done == self.total
        if self.bar is show_nothing and (last or self.done % max(1, self.total // LINES) == 0):
            left = (time.monotonic() - self.start) / self.done * (self.total - self.done)
            self.say(f"{self.title}: {self.done} of {self.total} done, {self.failures} failed, {duration(left)} left")

    def show(self) -> None:
        """Move the bar; as many tasks are under way as there are threads, while that many are left."""
        running = min(self.threads, self.total - self.done)
        self.bar(f"{running} running, {self.failures} failed", done=self.done)


@contextmanager
def progress_view(
    title: str, total: int, client: Any, progress: bool | None, say: Callable[[str], None] | None = None
) -> Iterator[View]:
    """A view of `total` pieces of work on standard error.

    Parameters
    ----------
    title, total, client
        What is done, how much of it there is, and the Dask client that does it.
    progress
        False shows nothing; None a bar where somebody watches; True also lines where nobody does.
    say
        A function that is told the lines in place of standard error; there is no bar then.
    """
    watched = progress is not False and say is None and total > 0
    with progress_bar(total, title, shown=watched) as bar:
        if bar is show_nothing:
            yield View(title, total, say or (_to_stderr if progress else None))
            return
        # Asked once: a question to a scheduler that has gone meanwhile would hold up the drawing.
        view = View(title, total, _to_stderr, bar, sum(client.nthreads().values()))
        view.show()
        yield view


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"headspan: {line}\n")
    sys.stderr.flush()
