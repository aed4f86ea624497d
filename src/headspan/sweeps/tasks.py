"""Tasks: a lens, or a block of it, on one checkpoint, or, for a lens of two subjects, on one and the one before it.

1. A result is named by what it was computed from (content hashes, lens and version of its schema, options, fold state)
   and by nothing else. A finished task is a file of that name: a second sweep, another number of workers, or another
   step with the same weights finds it.
2. A plan holds the tasks of one model, and says what each of its groups is gathered from.
3. A worker opens the checkpoint, runs the lens on one thread, and writes the result whole. Where a lens does not apply
   to these weights (a degenerate head, a model that cannot be run), the reason is the result.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from headspan.errors import ArgumentError, CheckpointError, DegenerateSubspace, NotRun, StoreError
from headspan.lenses.catalog import lens as lens_of
from headspan.lenses.catalog import lenses
from headspan.lenses.model import Model, open_model
from headspan.lenses.run import Opening, run
from headspan.result import Lens, Result
from headspan.sweeps.checkpoints import WHOLE, Description, Settings
from headspan.sweeps.groups import Gathering
from headspan.sweeps.parts import SCHEMA, Part, is_finished, part_nodes, write_part
from headspan.threads import one_thread


@dataclass(frozen=True)
class Task:
    """What a worker is told."""

    lens: str
    model: str
    step: int
    subjects: tuple[tuple[str, str], ...]
    """Source and content hash of the checkpoint; for a lens of two subjects, of the one before it and of it."""
    settings: Settings
    block: str = WHOLE
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The result's name: the same for the same work."""
        weights = [content_hash for _, content_hash in self.subjects]
        made_by = [SCHEMA, self.lens, lens_of(self.lens).schema.version]
        identity = json.dumps([*made_by, self.block, dict(self.options), weights, asdict(self.settings)])
        return hashlib.sha256(identity.encode()).hexdigest()[:40]

    @property
    def sources(self) -> set[str]:
        """The checkpoints that the task reads."""
        return {source for source, _ in self.subjects}

    def file(self, parts: Path) -> Path:
        """Where the result goes."""
        return parts / self.lens / f"{self.name}.npz"

    def label(self) -> str:
        """The task for a person."""
        block = "" if self.block == WHOLE else f" {self.block}"
        return f"{self.lens}{block} of {self.model} at step {self.step}"


def choose_lenses(asked: str | Sequence[str] | None) -> tuple[str, ...]:
    """The lenses of a sweep; those that read weights alone and follow series by default."""
    if asked is None:
        followed = [one for one in lenses().values() if one.in_series and not one.on_request]
        return tuple(one.name for one in followed if one.reads_weights_alone)
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    if not names:
        raise ArgumentError(f"lenses={asked!r} names none; lenses are {', '.join(lenses())}")
    for name in names:
        needed = _needed_options(lens_of(name))
        if needed:
            raise ArgumentError(f"lenses={asked!r}: {name} needs {' and '.join(needed)}, so it cannot be swept")
    return tuple(dict.fromkeys(names))


def _needed_options(lens: Lens) -> list[str]:
    """What a lens asks for beside the model."""
    listed = list(signature(lens.function).parameters.values())[lens.subjects :]
    return [one.name for one in listed if one.default is one.empty and one.kind is not one.VAR_KEYWORD]


@dataclass(frozen=True)
class Plan:
    """One model's checkpoints as described, and the tasks on them."""

    model: str
    described: Mapping[int, Description]
    tasks: Sequence[Task]
    skipped: Mapping[str, str]
    """Lenses that do not apply to this model, with the reason."""

    def gathering(self, lens: str, parts: Path) -> Gathering:
        """What this model's group of a lens is made of now: every step whose blocks are all finished."""
        files: dict[int, list[Path]] = {}
        for task in self.tasks:
            if task.lens == lens:
                files.setdefault(task.step, []).append(task.file(parts))
        whole = {step: paths for step, paths in sorted(files.items()) if all(map(is_finished, paths))}
        missing = [step for step in sorted(files) if step not in whole]
        facts = {step: self._facts(step, lens) for step in whole}
        return Gathering(self.model, lens, whole, facts, missing)

    def _facts(self, step: int, lens: str) -> dict[str, str | float]:
        here = self.described[step]
        facts: dict[str, str | float] = {
            "source": here.source,
            "revision": here.revision,
            "content_hash": here.content_hash,
            "identical_to": self.identical_to(step),
        }
        if lens_of(lens).subjects == 2:
            facts["previous_step"] = float(max(other for other in self.described if other < step))
        return facts

    def identical_to(self, step: int) -> float:
        """The earliest other step with the same weights; NaN where there is none."""
        same = self.described[step].content_hash
        others = [other for other, one in self.described.items() if other != step and one.content_hash == same]
        return float(min(others, default=float("nan")))


def plan(model: str, described: Mapping[int, Description], names: Iterable[str], settings: Settings) -> Plan:
    """The tasks of one model: every lens and block on every checkpoint, or pair of consecutive ones, it applies to."""
    steps, tasks = sorted(described), []
    skipped: dict[str, str] = {}
    for name in names:
        lens = lens_of(name)
        subjects = [(step,) for step in steps] if lens.subjects == 1 else list(pairwise(steps))
        if steps and not subjects:
            skipped[name] = "it compares two checkpoints, and there is one"
        for chosen in subjects:
            reasons = [described[step].skip_reasons.get(name) for step in chosen]
            reason = next(filter(None, reasons), None)
            if reason is not None:
                skipped[name] = reason
            else:
                tasks += list(_tasks(lens, model, chosen[-1], [described[step] for step in chosen], settings))
    return Plan(model, described, tasks, skipped)


def _tasks(lens: Lens, model: str, step: int, subjects: Sequence[Description], settings: Settings) -> Iterator[Task]:
    weights = tuple((one.source, one.content_hash) for one in subjects)
    for block, options in subjects[-1].blocks.get(lens.name, {WHOLE: {}}).items():
        yield Task(lens.name, model, step, weights, settings, block, {**lens.series_options, **options})


def tasks_to_do(tasks: Iterable[Task], parts: Path) -> list[Task]:
    """Tasks whose results are not there, each result once."""
    by_file = {task.file(parts): task for task in tasks}
    return [task for file, task in by_file.items() if not is_finished(file)]


def perform(task: Task, parts: str, time_limit: float | None = None) -> str:
    """Do a task and write its part; returns why the lens does not apply to these weights, or nothing."""
    target = task.file(Path(parts))
    if not target.parent.is_dir():
        raise StoreError(f"this worker does not see the store's folder '{target.parent}'; put it where all workers do")
    with one_thread(), threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            nodes, reason = part_nodes(_result(task, time_limit).data), ""
        except (DegenerateSubspace, NotRun) as problem:
            nodes, reason = {}, str(problem)
    write_part(target, Part(nodes, reason, sorted({str(warning.message) for warning in caught})))
    return reason


def _result(task: Task, time_limit: float | None) -> Result:
    models = [_opened(source, content_hash) for source, content_hash in task.subjects]
    fold, stack = task.settings.fold, task.settings.stack
    opening: Opening = {"fold": fold, "stack": stack, "time_limit": time_limit, "progress": False}
    return run(lens_of(task.lens), models, task.options, opening, unasked=True)


def _opened(source: str, content_hash: str) -> Model:
    """A model, refused if its weights are no longer those that were described."""
    model = open_model(source)
    found = model.checkpoint.store.content_hash()
    if found != content_hash and not found.startswith("sha256-of-headers:"):
        raise CheckpointError(
            f"the weights of '{source}' changed while the sweep ran; run it again when nothing writes there"
        )
    return model
