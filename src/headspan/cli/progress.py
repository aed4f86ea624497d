"""A bar on the terminal while steps are done; none where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def steps(total: int | None = None) -> Iterator[Callable[[str], None]]:
    """A function to call with the name of each step as it begins; it draws on stderr if a person sees it.

    Without a total the bar only shows that something is going on.
    """
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)

        def step(name: str) -> None:
            # A step counts when the next begins.
            done = progress.tasks[0].description != ""
            progress.update(task, advance=1 if done else 0, description=escape(name))

        yield step
