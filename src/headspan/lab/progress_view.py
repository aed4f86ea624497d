"""What a run shows while it trains: loss, accuracies and time left on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

View = Callable[[int, Mapping[str, float]], None]
"""Told after every step how far the run is, and at recorded steps `loss`, `id` and `ood`."""


def silent(step: int, numbers: Mapping[str, float]) -> None:
    """A view that shows nothing."""


@contextmanager
def live_view(title: str, steps: int) -> Iterator[View]:
    """A progress bar on standard error while the block runs, if that is a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    numbers = TextColumn("loss {task.fields[loss]}  ID {task.fields[id]}  OOD {task.fields[ood]}")
    with Progress(*columns, numbers, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=steps, loss="-", id="-", ood="-")

        def show(step: int, numbers: Mapping[str, float]) -> None:
            shown: dict[str, Any] = {key: f"{value:.3f}" for key, value in numbers.items()}
            bar.update(task, completed=step, **shown)

        yield show
