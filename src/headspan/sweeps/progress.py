"""What a sweep shows while it runs: a live line on a terminal, plain lines elsewhere, nothing if it is quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

LINES = 20
"""About how many lines a whole sweep logs where nobody watches."""


class View(Protocol):
    """Told of every outcome."""

    def ended(self, label: str, failed: str = "") -> None:
        """One more piece of work is over; `failed` says why it failed."""


@dataclass
class Quiet:
    """Shows nothing."""

    def ended(self, label: str, failed: str = "") -> None:
        """Nothing."""


@dataclass
class Lines:
    """A line now and then, and one for every failure."""

    title: str
    total: int
    say: Callable[[str], None]
    done: int = 0
    failures: int = 0
    start: float = field(default_factory=time.monotonic)

    def ended(self, label: str, failed: str = "") -> None:
        self.done, self.failures = self.done + 1, self.failures + bool(failed)
        if failed:
            self.say(f"{self.title}: {label} failed: {failed}")
        if self.done == self.total or self.done % max(1, self.total // LINES) == 0:
            left = (time.monotonic() - self.start) / self.done * (self.total - self.done)
            self.say(f"{self.title}: {self.done} of {self.total} done, {self.failures} failed, {duration(left)} left")


def duration(seconds: float) -> str:
    """Seconds for a person."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress_view(
    title: str, total: int, client: Any, quiet: bool, say: Callable[[str], None] | None = None
) -> Iterator[View]:
    """A view of `total` pieces of work on standard error."""
    if quiet or not total:
        yield Quiet()
    elif sys.stderr.isatty() and say is None:
        with _live(title, total, client) as view:
            yield view
    else:
        yield Lines(title, total, say or _to_stderr)


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"headspan: {line}\n")
    sys.stderr.flush()


@contextmanager
def _live(title: str, total: int, client: Any) -> Iterator[View]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # Asked once: a question to a scheduler that has gone meanwhile would hold up the drawing.
    threads = sum(client.nthreads().values())
    counts = TextColumn("{task.fields[running]} running  {task.fields[failed]} failed")
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task("", total=total, failed=0, running=min(threads, total))

        @dataclass
        class Live:
            """One line; as many tasks are under way as there are threads, while that many are left."""

            done: int = 0
            failures: int = 0

            def ended(self, label: str, failed: str = "") -> None:
                self.done, self.failures = self.done + 1, self.failures + bool(failed)
                if failed:
                    bar.console.print(f"{label} failed: {failed}", markup=False, highlight=False)
                left = min(threads, total - self.done)
                bar.update(task, completed=self.done, failed=self.failures, running=left)

        yield Live()
