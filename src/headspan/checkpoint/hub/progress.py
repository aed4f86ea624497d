"""A bar on the terminal while bytes arrive; none where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from huggingface_hub.utils import are_progress_bars_disabled

WORTH_A_BAR = 4 * 2**20


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of bytes that arrived; it draws on stderr if a person sees it and waits."""
    watched = sys.stderr.isatty() and sys.stdout.isatty() and not are_progress_bars_disabled()
    if total < WORTH_A_BAR or not watched:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(label), total=total)
        yield lambda n: progress.advance(task, n)
