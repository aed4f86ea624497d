"""Where tasks run: a Dask scheduler by its address, or a local cluster of processes with one thread each.

One thread per worker, because results must not depend on how many there are: sums over threads would.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from headspan.errors import HeadspanError

PATIENCE = 10.0
"""Seconds to wait for a scheduler to answer."""
LOGGERS = ("distributed", "tornado", "asyncio")
START = 120.0
"""Seconds to wait for the first worker; importing torch on a busy machine takes long."""


@contextmanager
def connected(scheduler: str | None = None, workers: int | None = None, patience: float = PATIENCE) -> Iterator[Any]:
    """A Dask client of the scheduler at that address, or of a local cluster that ends with the block."""
    if scheduler is not None and workers is not None:
        raise HeadspanError("--scheduler and --workers exclude each other: a running cluster has its own workers")
    if workers is not None and workers < 1:
        raise HeadspanError(f"a sweep needs at least 1 worker, not {workers}")
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
