"""`Follower`: called once a step in any training loop, it keeps what lenses see of the weights every so many steps.

1. Every `every` steps the weights are written to a folder of their own.
2. A second process runs the lenses on it and keeps their results; training does not wait for it, unless `waiting`
   snapshots already do.
3. What has come back is told to the loggers: means over heads of every quantity, and figures on request.
4. `close` waits for the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

from headspan.callbacks.following import Done, Work
from headspan.callbacks.loggers import Logger, chosen_loggers, tell
from headspan.callbacks.snapshot import write_snapshot
from headspan.errors import ArgumentError, HeadspanError, NotFollowed
from headspan.input_files import json_object
from headspan.lenses.catalog import lens
from headspan.sweeps.store import Store
from headspan.sweeps.tasks import choose_lenses

PATIENCE = 600.0
"""Seconds to wait for one snapshot before the second process is given up."""


class Follower:
    """Lenses that follow a training run.

    Parameters
    ----------
    folder
        Where results go: a store that `headspan evolution FOLDER` and `headspan.sweeps.open_store` read. An existing
        one is gone on with.
    lenses
        Names, separated by commas or listed; affinity and spectra by default. They read weights alone, one checkpoint
        at a time.
    every
        Steps between two looks; a call at any other step returns at once.
    name
        What the model is called in the store.
    config
        The model's config, where it has none of its own.
    fold
        "none" or "layernorm".
    loggers
        "tensorboard", "wandb", or objects with `scalars(step, values)` and `figure(step, name, figure)`.
    figures
        Titles of figures to log as well, such as "Wiring diagram".
    background
        Run the lenses in a second process while training goes on; False runs them in the call.
    waiting
        How many snapshots may wait before a call waits for one of them.
    keep
        Keep the snapshots; by default each is deleted when the lenses are done with it.

    Examples
    --------
    >>> import headspan, tempfile
    >>> from headspan.callbacks import Follower
    >>> weights = headspan.open("demo").checkpoint
    >>> state = weights.store.read(list(weights.store.infos))
    >>> with Follower(tempfile.mkdtemp(), lenses="ranks", every=10, config=weights.config.fields) as follow:
    ...     for step in range(21):
    ...         follow(state, step)
    >>> [done.step for done in follow.done]
    [0, 10, 20]
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        lenses: str | Sequence[str] = ("affinity", "spectra"),
        every: int = 100,
        name: str = "model",
        config: Any = None,
        fold: str = "none",
        loggers: Sequence[str | Logger] = (),
        figures: Sequence[str] = (),
        background: bool = True,
        waiting: int = 2,
        keep: bool = False,
    ) -> None:
        if every < 1 or waiting < 1:
            raise ArgumentError(f"every = {every} and waiting = {waiting} must be at least 1")
        self.work = Work(Path(folder).absolute(), name, _followed(lenses), fold)
        self.every, self.config, self.keep = every, config, keep
        self.background, self.waiting, self.figures = background, waiting, tuple(figures)
        self.done: list[Done] = []
        """What became of every step, in order."""
        self.blocked = 0.0
        """Seconds that training waited for calls of this object."""
        self._lock = Store.claim(self.work.store, self.work.settings).lock()
        self._lock.__enter__()
        self.loggers = chosen_loggers(loggers, self.work.store)
        self._open = True
        self._process: subprocess.Popen[str] | None = None
        self._answers: Queue[Done | None] = Queue()
        self._waiting = 0

    def __call__(self, model: Any, step: int) -> None:
        """Look at the model if it is time to.

        Parameters
        ----------
        model
            A `transformers` model; or a module or state dict, where `config` was given.
        step
            The training step.
        """
        if step % self.every:
            return
        if not self._open:
            raise HeadspanError("this Follower is closed; make another one to go on with the same folder")
        start = time.perf_counter()
        folder = self.work.store / "snapshots" / f"step-{step}"
        write_snapshot(model, self.config, folder)
        if self.background:
            self._send(step, folder)
        else:
            self._take(self.work.on(step, folder))
        self.blocked += time.perf_counter() - start

    def _send(self, step: int, folder: Path) -> None:
        process = self._started()
        while self._waiting >= self.waiting:
            self._receive(PATIENCE)
        if process.stdin is None or process.poll() is not None:
            self._take(Done(step, 0.0, {}, problem="the second process has ended"))
            return
        process.stdin.write(json.dumps({"step": step, "folder": str(folder)}) + "\n")
        process.stdin.flush()
        self._waiting += 1
        while not self._answers.empty():
            self._receive(0.0)

    def _started(self) -> subprocess.Popen[str]:
        """The second process, with one thread; begun with the first snapshot."""
        if self._process is None:
            work = self.work
            words = [str(work.store), work.model, ",".join(work.lenses), work.fold]
            one = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
            hidden = {"CUDA_VISIBLE_DEVICES": ""}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headspan.callbacks.following", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, **one, **hidden},
            )
            self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
            self._listener.start()
        return self._process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self._answers.put(Done(**json_object(line.encode(), "an answer of the second process")))
        self._answers.put(None)

    def _receive(self, patience: float) -> None:
        """Take one answer; where none comes, what is waiting is given up."""
        try:
            answer = self._answers.get(timeout=patience) if patience else self._answers.get_nowait()
        except Empty:
            answer = None
        if answer is not None:
            self._waiting -= 1
            self._take(answer)
            return
        while self._waiting:
            self._waiting -= 1
            self._take(Done(-1, 0.0, {}, problem="the second process ended without an answer"))

    def _take(self, done: Done) -> None:
        if done.skipped and not self.done:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in done.skipped.items())
            warnings.warn(f"these lenses do not follow this model ({reasons})", NotFollowed, stacklevel=4)
        self.done.append(done)
        if done.problem:
            at = f"step {done.step}" if done.step >= 0 else "a step"
            warnings.warn(f"{at} was not followed: {done.problem}", NotFollowed, stacklevel=4)
        else:
            tell(self.loggers, self.work, done, self.figures)
        if not self.keep and done.step >= 0:
            shutil.rmtree(self.work.store / "snapshots" / f"step-{done.step}", ignore_errors=True)

    def close(self) -> None:
        """Wait for the lenses to finish, and end the second process."""
        if not self._open:
            return
        self._open = False
        start = time.perf_counter()
        try:
            while self._waiting:
                self._receive(PATIENCE)
            for logger in self.loggers:
                logger.close()
        finally:
            self._end_process()
            self._lock.__exit__(None, None, None)
            self.blocked += time.perf_counter() - start

    def _end_process(self) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listener.join()
        process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def _followed(names: str | Sequence[str]) -> tuple[str, ...]:
    chosen = choose_lenses(names)
    for name in chosen:
        one = lens(name)
        if one.subjects != 1 or one.runs:
            why = "compares two checkpoints" if one.subjects != 1 else "runs the model"
            raise ArgumentError(
                f"lenses: {name} {why}, and a Follower looks at weights, one checkpoint at a time; keep the snapshots "
                f"(keep=True) and use: headspan sweep FOLDER/snapshots --lenses {name}"
            )
    return chosen
