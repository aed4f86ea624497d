"""One progress bar for everything that takes long, and one way to write a duration.

The bar is drawn on standard error if that is a terminal, or below the cell of a notebook; elsewhere nothing is shown,
so that logs and pipes stay clean. It says what is being done and, where the amount of work is known, how much is done
and the time left. Work deep inside names its steps with `current_step`, which moves the bar that is open, if any; a bar
that is opened inside another moves the outer one's text alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task


@runtime_checkable
class Step(Protocol):
    """Names what begins now."""

    def __call__(self, name: str, *, done: float | None = None) -> None:
        """Show `name`; `done` is how much of the total is complete (by default, one more at every call but the first).

        The default fits a list of steps, each of which is complete when the next begins.
        """


def duration(seconds: float) -> str:
    """Seconds as a person would say them.

    Examples
    --------
    >>> duration(3.2), duration(300), duration(9000)
    ('3 s', '5 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Countdown:
    """Lines of a log that say which step begins, of how many, and about how long the rest will take.

    >>> countdown = Countdown(2)
    >>> countdown.line("Spectra")
    '1/2 Spectra ...'
    """

    def __init__(self, total: int) -> None:
        self.total, self.begun, self.start = total, 0, monotonic()

    def line(self, name: str) -> str:
        """The line of the step that begins now; the time left is that of the steps before, on average."""
        passed = monotonic() - self.start
        left = f" (about {duration(passed / self.begun * (self.total - self.begun))} left)" if self.begun else ""
        self.begun += 1
        return f"{self.begun}/{self.total} {name} ...{left}"


Draw = Callable[[str, float], None]
"""Shows a text and how much is done."""
REDRAWN = 0.2
"""Seconds between two texts below a cell."""

_OPEN: ContextVar[Step | None] = ContextVar("_OPEN", default=None)
"""The bar that is open."""


def current_step(name: str) -> None:
    """Name what begins now, inside whatever is being done; the bar that is open shows it."""
    step = _OPEN.get()
    if step is not None:
        step(name)


def show_nothing(name: str, *, done: float | None = None) -> None:
    """A step that nobody watches."""


@contextmanager
def progress_bar(total: float | None = None, title: str = "", *, shown: bool = True) -> Iterator[Step]:
    """A bar while the block runs, and the function that moves it.

    Parameters
    ----------
    total
        How much there is to do, in the unit of `done`; None where it is not known: the bar then shows the time spent.
    title
        Stands before the name of every step.
    shown
        False shows nothing, whoever watches.

    Yields
    ------
    Step
        To be called with the name of each step as it begins. It does nothing where nobody watches.

    Examples
    --------
    >>> with progress_bar(2) as step:
    ...     for name in ("spectra", "affinity"):
    ...         step(name)
    """
    outer = _OPEN.get()
    if outer is not None:
        yield lambda name, *, done=None: outer(name)
        return
    bar = _watched_bar(total) if shown else None
    if bar is None:
        yield show_nothing
        return
    begun, complete, current = False, 0.0, title
    with bar as draw:
        draw(title, complete)

        def step(name: str, *, done: float | None = None) -> None:
            nonlocal begun, complete, current
            complete = complete + begun if done is None else done
            begun = True
            current = " ".join(part for part in (title, name) if part)
            draw(current, complete)

        def inside(name: str, *, done: float | None = None) -> None:
            draw(f"{current}: {name}" if current else name, complete)

        token = _OPEN.set(inside)
        try:
            yield step
        finally:
            _OPEN.reset(token)


def _watched_bar(total: float | None) -> AbstractContextManager[Draw] | None:
    """A bar where it would be seen: on a terminal, or below a cell of a notebook. None where it would not."""
    if not sys.stderr.isatty() and "IPython" not in sys.modules:
        return None
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter:
        return _cell_line(total)
    return _terminal_bar(console, total) if console.is_terminal else None


@contextmanager
def _terminal_bar(console: Console, total: float | None) -> Iterator[Draw]:
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class Amount(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_amount(task.completed, task.total, task.elapsed or 0.0, task.time_remaining))

    with Progress(TextColumn("{task.description}"), BarColumn(), Amount(), console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, done: bar.update(task, description=escape(text), completed=done)


@contextmanager
def _cell_line(total: float | None) -> Iterator[Draw]:
    """A line of text that is emptied at the end; a widget would stay in the file and load scripts in an export."""
    from IPython.display import display

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    start, drawn = monotonic(), float("-inf")

    def draw(text: str, done: float) -> None:
        nonlocal drawn
        now = monotonic()
        if now - drawn > REDRAWN:
            drawn, passed = now, now - start
            left = (total - done) * passed / done if total and done else None
            handle.update({"text/plain": f"{text} {_amount(done, total, passed, left)}"}, raw=True)

    try:
        yield draw
    finally:
        handle.update({"text/plain": ""}, raw=True)


def _amount(done: float, total: float | None, passed: float, left: float | None) -> str:
    """What is done and the time left, as far as it can be told; without a total, the time spent."""
    if total is None:
        return duration(passed)
    return f"{done:g}/{total:g}" + ("" if left is None else f", {duration(left)} left")
