"""Handing work to Dask and taking what comes back, in whatever order it is done.

Dask schedules, retries after the death of a worker, and balances; here outcomes are told apart. A task that raises is a
failure with a reason and does not stop the rest. Two things do: a store that can take no more (every further result
would be computed in vain) and a scheduler that is gone. What was not run then is said to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from uuid import uuid4

from headspan.errors import HeadspanError, StoreError, one_line

DONE, FAILED, NOT_RUN = "done", "failed", "not run"
PATIENCE = 60.0
"""Seconds to wait for an answer that is already there."""


@dataclass(frozen=True)
class Answer:
    """What a worker sends back: a value, or the reason why there is none, and whether that ends the whole sweep."""

    value: Any = None
    reason: str = ""
    ends: bool = False


@dataclass(frozen=True)
class Outcome:
    """How one piece of work ended: what the worker answered, or why there is nothing."""

    item: Any
    state: str
    answer: Answer
    reason: str = ""

    @property
    def value(self) -> Any:
        return self.answer.value


def outcomes(client: Any, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Iterator[Outcome]:
    """Run `function(item, *arguments)` for every item on the cluster; each outcome as soon as it is there.

    Parameters
    ----------
    client
        A Dask client.
    function
        A function that workers can import.
    items
        What to run it on; each gets a key of its own, so that a scheduler that remembers earlier sweeps runs it anew.
    """
    distributed: Any = import_module("distributed")
    waiting = {
        client.submit(attempted, function, item, *arguments, key=_key(function, item), pure=False): item
        for item in items
    }
    stopped = ""
    for future in distributed.as_completed(list(waiting), loop=client.loop):
        outcome = _outcome(future, waiting.pop(future), stopped)
        if outcome.answer.ends and not stopped:
            stopped = outcome.reason
            client.cancel(list(waiting), force=True)
        future.release()
        yield outcome


def attempted(function: Callable[..., Any], item: Any, *arguments: Any) -> Answer:
    """A worker's attempt at one piece of work.

    Errors travel as text. As exceptions they would have to be pickled, and one that cannot be (a traceback that is too
    deep, an error of a library that the client lacks) would leave the client waiting for ever.
    """
    try:
        return Answer(function(item, *arguments))
    except Exception as problem:  # noqa: BLE001 - whatever goes wrong with one task is its outcome, not the sweep's end
        return Answer(reason=reason_of(problem), ends=isinstance(problem, StoreError))


def _outcome(future: Any, item: Any, stopped: str) -> Outcome:
    if future.status == "finished":
        try:
            answer = future.result(timeout=PATIENCE)
        except (OSError, CancelledError):  # lost with its worker between the two calls
            return Outcome(item, NOT_RUN, Answer(), "its worker was lost")
        return Outcome(item, FAILED if answer.reason else DONE, answer, answer.reason)
    if future.status == "error":
        return Outcome(item, FAILED, Answer(), reason_of(future.exception(timeout=PATIENCE)))
    return Outcome(item, NOT_RUN, Answer(), stopped or "the connection to the scheduler was lost")


def reason_of(problem: BaseException) -> str:
    """Why a task failed, in one line."""
    if isinstance(problem, HeadspanError):
        return str(problem)
    if type(problem).__name__ == "KilledWorker":
        return "every worker that took it died (out of memory?); try fewer workers"
    return one_line(f"{type(problem).__name__}: {problem}")


def _key(function: Callable[..., Any], item: Any) -> str:
    return f"headspan-{getattr(item, 'lens', function.__name__)}-{uuid4().hex}"
