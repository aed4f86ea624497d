"""Where tasks run, and how they end.

1. A Dask scheduler by its address, or a local cluster of processes with one thread each: results must not depend on how
   many there are, and sums over threads would.
2. Dask schedules, retries after the death of a worker, and balances; here outcomes are told apart. A task that raises
   is a failure with a reason and does not stop the rest. Two things do: a store that can take no more (every further
   result would be computed in vain) and a scheduler that is gone. What was not run then is said to be so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from headspan.errors import ArgumentError, HeadspanError, StoreError, one_line

TO_RUN, TO_READ = ("dask", "distributed", "zarr"), ("zarr",)
"""Packages that sweeps need beyond headspan's own."""
DONE, FAILED, NOT_RUN = "done", "failed", "not run"
ANSWER = 60.0
"""Seconds to wait for an answer that is already there."""
PATIENCE = 10.0
"""Seconds to wait for a scheduler to answer."""
LOGGERS = ("distributed", "tornado", "asyncio")
START = 120.0
"""Seconds to wait for the first worker; importing torch on a busy machine takes long."""


def require(packages: tuple[str, ...]) -> None:
    """Refuse to go on without these packages."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise HeadspanError(f"a sweep needs {' and '.join(missing)}: pip install 'headspan[sweep]'")


def check_cluster(scheduler: str | None, workers: int | None) -> None:
    """Refuse a choice of cluster that cannot be."""
    if scheduler is not None and workers is not None:
        raise ArgumentError("--scheduler and --workers exclude each other: a running cluster has its own workers")
    if workers is not None and workers < 1:
        raise ArgumentError(f"a sweep needs at least 1 worker, not {workers}")


@contextmanager
def connect(scheduler: str | None = None, workers: int | None = None, patience: float = PATIENCE) -> Iterator[Any]:
    """A Dask client of the scheduler at that address, or of a local cluster that ends with the block."""
    check_cluster(scheduler, workers)
    distributed: Any = import_module("distributed")
    with ExitStack() as stack:
        stack.enter_context(_quiet_loggers())
        address = stack.enter_context(local_cluster(workers)) if scheduler is None else scheduler
        try:
            client = stack.enter_context(distributed.Client(address, timeout=patience, set_as_default=False))
            client.wait_for_workers(1, timeout=START if scheduler is None else patience)
        except (TimeoutError, OSError, ValueError) as problem:
            raise HeadspanError(_unreachable(scheduler, problem, patience)) from problem
        yield client


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Dask logs tracebacks of connections that end, which outcomes report in a line each; not so within the block."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in LOGGERS]
    levels = {name: logging.getLogger(name).level for name in {*names, *LOGGERS}}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def local_cluster(workers: int | None = None) -> Iterator[Any]:
    """Worker processes on this machine, one per core by default, that end with the block.

    Dask's profiler is off: it looks at a worker a hundred times a second and keeps an hour of what it sees, so that the
    memory of a worker would grow with the time it runs.
    """
    dask: Any = import_module("dask")
    distributed: Any = import_module("distributed")
    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),
        distributed.LocalCluster(
            n_workers=workers or len(os.sched_getaffinity(0)),
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster


def _unreachable(scheduler: str | None, problem: BaseException, patience: float) -> str:
    if scheduler is None:
        return f"the local workers did not start within {START:.0f} s ({problem}); try --workers 1"
    if "workers" in str(problem):
        return f"the scheduler at '{scheduler}' has no worker; start one with: dask worker {scheduler} --nthreads 1"
    return (
        f"no Dask scheduler answered at '{scheduler}' within {patience:g} s ({problem}); "
        "check the address (tcp://host:port), or leave --scheduler out"
    )


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
    value: Any = None
    reason: str = ""
    ends: bool = False


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
        client.submit(attempt, function, item, *arguments, key=_key(function, item), pure=False): item for item in items
    }
    stopped = ""
    for future in distributed.as_completed(list(waiting), loop=client.loop):
        outcome = _outcome(future, waiting.pop(future), stopped)
        if outcome.ends and not stopped:
            stopped = outcome.reason
            client.cancel(list(waiting), force=True)
        future.release()
        yield outcome


def attempt(function: Callable[..., Any], item: Any, *arguments: Any) -> Answer:
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
            answer = future.result(timeout=ANSWER)
        except (OSError, CancelledError):  # lost with its worker between the two calls
            return Outcome(item, NOT_RUN, reason="its worker was lost")
        return Outcome(item, FAILED if answer.reason else DONE, answer.value, answer.reason, answer.ends)
    if future.status == "error":
        return Outcome(item, FAILED, reason=reason_of(future.exception(timeout=ANSWER)))
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
