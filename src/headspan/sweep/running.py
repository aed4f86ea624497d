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


@dataclass(frozen=True)
class Outcome:
    """How one piece of work ended: its value, or why there is none."""

    item: Any
    state: str
    value: Any = None
    reason: str = ""


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
    waiting = {client.submit(function, item, *arguments, key=_key(function, item), pure=False): item for item in items}
    stopped = ""
    for future in distributed.as_completed(list(waiting), loop=client.loop):
        outcome = _outcome(future, waiting.pop(future), stopped)
        if outcome.state == FAILED and isinstance(outcome.value, StoreError) and not stopped:
            stopped = outcome.reason
            client.cancel(list(waiting), force=True)
        future.release()
        yield outcome


def _outcome(future: Any, item: Any, stopped: str) -> Outcome:
    if future.status == "finished":
        try:
            return Outcome(item, DONE, future.result())
        except (OSError, CancelledError):  # the result was lost with its worker between the two calls
            return Outcome(item, NOT_RUN, reason="its worker was lost")
    if future.status == "error":
        problem = future.exception()
        return Outcome(item, FAILED, problem, reason_of(problem))
    return Outcome(item, NOT_RUN, reason=stopped or "the connection to the scheduler was lost")


def reason_of(problem: BaseException) -> str:
    """Why a task failed, in one line."""
    if isinstance(problem, HeadspanError):
        return str(problem)
    if type(problem).__name__ == "KilledWorker":
        return "every worker that took it died (out of memory?); try fewer workers"
    return one_line(f"{type(problem).__name__}: {problem}")


def _key(function: Callable[..., Any], item: Any) -> str:
    return f"headspan-{getattr(item, 'lens', function.__name__)}-{uuid4().hex}"
