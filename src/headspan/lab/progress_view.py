"""What a run shows while it trains: loss, accuracies and time left on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class View(Protocol):
    """Told after every step how far the run is."""

    def __call__(self, step: int, loss: float | None = None, id_accuracy: float | None = None,
                 ood_accuracy: float | None = None) -> None: ...  # fmt: skip


def silent(
    step: int, loss: float | None = None, id_accuracy: float | None = None, ood_accuracy: float | None = None
) -> None:
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

        def show(
            step: int, loss: float | None = None, id_accuracy: float | None = None, ood_accuracy: float | None = None
        ) -> None:
            said = {"loss": loss, "id": id_accuracy, "ood": ood_accuracy}
            shown: dict[str, Any] = {key: f"{value:.3f}" for key, value in said.items() if value is not None}
            bar.update(task, completed=step, **shown)

        yield show
