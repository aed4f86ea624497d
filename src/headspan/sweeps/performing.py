"""What a worker does for one task: open the checkpoint, run the lens on one thread, write the result whole.

A lens that cannot say anything of these weights (a degenerate head, a model that cannot be run) is no failure: its
reason is the result.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import xarray as xr
from threadpoolctl import threadpool_limits

from headspan.checkpoint import open_checkpoint
from headspan.errors import CheckpointError, DegenerateSubspace, StoreError
from headspan.explorer.subjects import NotRun, Subjects
from headspan.heads import Heads
from headspan.lenses import lens
from headspan.sweeps.description import Description, Settings, describe
from headspan.sweeps.part_file import Part, nodes_of, write_part
from headspan.sweeps.task import DRIFT, Task
from headspan.threads import one_thread


def perform(task: Task, parts: str) -> str:
    """Do a task and write its part; returns why the lens had nothing to say, or nothing."""
    target = task.file(Path(parts))
    if not target.parent.is_dir():
        raise StoreError(f"this worker does not see the store's folder '{target.parent}'; put it where all workers do")
    with one_thread(), threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            nodes, reason = nodes_of(_result(task)), ""
        except (DegenerateSubspace, NotRun) as problem:
            nodes, reason = {}, str(problem)
    write_part(target, Part(nodes, reason, sorted({str(warning.message) for warning in caught})))
    return reason


def perform_describe(source: str, settings: Settings, folder: str) -> Description:
    """Describe a checkpoint on a worker."""
    with one_thread():
        return describe(source, settings, Path(folder))


def _result(task: Task) -> xr.Dataset | xr.DataTree:
    heads = _heads(task.source, task.content_hash, task.settings)
    if task.lens == DRIFT and task.before is not None:
        from headspan.lenses import drift

        result: xr.Dataset = drift.compute(_heads(task.before.source, task.before.content_hash, task.settings), heads)
        return result
    used, subjects = lens(task.lens), Subjects(heads)
    if used.runs:
        return used.compute(subjects.running, **task.options)
    if not used.without_running:
        return used.compute(heads, **task.options)
    try:
        return used.compute(heads, running=subjects.running, **task.options)
    except NotRun as reason:
        return used.compute(heads, running=str(reason), **task.options)


def _heads(source: str, content_hash: str, settings: Settings) -> Heads:
    """A checkpoint's heads, refused if its weights are no longer those that were described."""
    checkpoint = open_checkpoint(source)
    found = checkpoint.store.content_hash()
    if found != content_hash and not found.startswith("sha256-of-headers:"):
        raise CheckpointError(
            f"the weights of '{source}' changed while the sweep ran; run it again when nothing writes there"
        )
    return settings.heads(checkpoint)
