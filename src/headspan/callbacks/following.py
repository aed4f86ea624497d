"""The work on one snapshot: describe it, run the lenses, keep the parts; here or in a process of its own.

As a process (`python -m headspan.callbacks.following STORE MODEL LENSES FOLD`) it reads lines of JSON, each with a step
and a folder, and answers each with a line: what it took, or what went wrong. It ends when its input does.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headspan.errors import HeadspanError
from headspan.input_files import json_object
from headspan.sweeps.checkpoints import Settings, describe
from headspan.sweeps.specification import Series
from headspan.sweeps.store import Store, join_series
from headspan.sweeps.tasks import perform, plan


@dataclass(frozen=True)
class Done:
    """What became of one step."""

    step: int
    seconds: float
    """Processor time of the lenses."""
    parts: dict[str, str]
    """By lens, the file with its result, below the store's `parts`."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Lenses that do not apply to the model, with the reason."""
    problem: str = ""


@dataclass(frozen=True)
class Work:
    """Lenses on the snapshots of one model, into one store."""

    store: Path
    model: str
    lenses: tuple[str, ...]
    fold: str = "none"

    @property
    def settings(self) -> Settings:
        return Settings(self.fold, None)

    def on(self, step: int, folder: Path) -> Done:
        """Run the lenses on the snapshot in `folder`; what goes wrong is told, not raised: training goes on."""
        start = time.process_time()
        try:
            parts, skipped = self._parts(step, folder)
        except (HeadspanError, OSError) as problem:
            return Done(step, time.process_time() - start, {}, problem=str(problem))
        return Done(step, time.process_time() - start, parts, skipped)

    def _parts(self, step: int, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
        store, source = Store(self.store), str(folder)
        described = describe(source, self.settings, store.checkpoints)
        planned = plan(self.model, {step: described}, self.lenses, self.settings)
        store.make_folders(self.lenses)
        for task in planned.tasks:
            perform(task, str(store.parts))
        series = join_series(store.series(), [Series(self.model, {step: source})])
        kept = list(dict.fromkeys([*store.manifest()["lenses"], *self.lenses]))
        store.write_manifest(series, kept, self.settings)
        whole = {task.lens: task for task in planned.tasks}
        return {lens: str(task.file(Path())) for lens, task in whole.items()}, dict(planned.skipped)


def main(arguments: Sequence[str]) -> None:
    """The process: a line in, a line out."""
    os.nice(5)  # training goes first
    # What ends with the process is not looked through for garbage: that would take as long as several snapshots.
    atexit.register(gc.freeze)
    store, model, lenses, fold = arguments
    work = Work(Path(store), model, tuple(lenses.split(",")), fold)
    for line in sys.stdin:
        asked = json_object(line.encode(), "a line of the training process")
        done = work.on(int(asked["step"]), Path(asked["folder"]))
        sys.stdout.write(json.dumps(asdict(done)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
