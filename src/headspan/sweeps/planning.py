"""From series, descriptions and lenses to tasks, and from tasks to what a group is gathered from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headspan.errors import HeadspanError
from headspan.lenses import LENSES
from headspan.sweeps.blocks import WHOLE
from headspan.sweeps.description import Description, Settings
from headspan.sweeps.gathering import Gathering
from headspan.sweeps.part_file import is_finished
from headspan.sweeps.task import DRIFT, Task

DEFAULT = (*(each.name for each in LENSES.values() if not (each.runs or each.without_running)), DRIFT)
"""Lenses that read weights alone, and the drift between steps."""


def chosen_lenses(asked: str | Sequence[str] | None) -> tuple[str, ...]:
    """The lenses of a sweep; all that need no running model by default."""
    if asked is None:
        return DEFAULT
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    known = (*LENSES, DRIFT)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise HeadspanError(f"there is no lens {unknown[0] if unknown else ''!r}; lenses are {', '.join(known)}")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Plan:
    """One model's checkpoints as described, and the tasks on them."""

    model: str
    described: Mapping[int, Description]
    tasks: Sequence[Task]
    obstacles: Mapping[str, str]
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
            "identical_to": identical_to(self.described, step),
        }
        if lens == DRIFT:
            facts["previous_step"] = previous_step(self.described, step)
        return facts


def plan(model: str, described: Mapping[int, Description], lenses: Iterable[str], settings: Settings) -> Plan:
    """The tasks of one model: every lens and block on every checkpoint that it applies to, and drifts between them."""
    steps, tasks = sorted(described), []
    hindered: dict[str, str] = {}
    for name in lenses:
        if name == DRIFT:
            if len(steps) < 2:
                hindered[name] = "there is one checkpoint, and drift is between two"
            tasks += [_drift(model, described, pair, settings) for pair in pairwise(steps)]
            continue
        for step in steps:
            reason = described[step].obstacles.get(name)
            if reason is not None:
                hindered[name] = reason
            else:
                tasks += list(_blocks(model, step, name, described[step], settings))
    return Plan(model, described, tasks, hindered)


def _blocks(model: str, step: int, lens: str, here: Description, settings: Settings) -> Iterator[Task]:
    for block, options in here.blocks.get(lens, {WHOLE: {}}).items():
        yield Task(lens, model, step, here.source, here.content_hash, settings, block, options)


def _drift(model: str, described: Mapping[int, Description], pair: tuple[int, int], settings: Settings) -> Task:
    before, after = described[pair[0]], described[pair[1]]
    return Task(DRIFT, model, pair[1], after.source, after.content_hash, settings, before=before)


def identical_to(described: Mapping[int, Description], step: int) -> float:
    """The earliest other step with the same weights; NaN where there is none."""
    same = [
        other
        for other in sorted(described)
        if other != step and described[other].content_hash == described[step].content_hash
    ]
    return float(same[0]) if same else float("nan")


def previous_step(described: Mapping[int, Description], step: int) -> float:
    """The step before; NaN for the first."""
    before = [other for other in described if other < step]
    return float(max(before)) if before else float("nan")


def unfinished(tasks: Iterable[Task], parts: Path) -> list[Task]:
    """Tasks whose results are not there, each result once."""
    by_file = {task.file(parts): task for task in tasks}
    return [task for file, task in by_file.items() if not is_finished(file)]
