"""What a sweep has to know of a checkpoint before it works on it: content, shape, lenses that apply, blocks.

The content's hash names the weights: results belong to it, not to a path or a time. Hashing reads all weights, so the
description is kept, with a fingerprint of the files (sizes, inodes, times of change). Fingerprints are only ever tested
for equality; a clock that goes backwards makes a hash be computed again, nothing else.

A block is a part of a lens's result that does not depend on the rest. Which blocks there are, the lens says with a
function `blocks(heads)` of its measurement: names, each with the options that ask for it. Small checkpoints are one
block, since each block opens the checkpoint again. The division follows from the checkpoint's shape alone, so that it
is the same for every step, every number of workers and every call.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

from headspan.checkpoint import Checkpoint
from headspan.checkpoint.converted import ConvertedTensors
from headspan.checkpoint.formats.local_files import LocalFiles, file_digest, hash_of_files
from headspan.dims import ROLES
from headspan.errors import HeadspanError, ShapeError
from headspan.heads import Heads
from headspan.input_files import checked, read_json
from headspan.lenses.catalog import lenses
from headspan.lenses.model import Model, open_model
from headspan.result import Lens
from headspan.sweeps.parts import write_text
from headspan.threads import one_thread

SCHEMA = "headspan.sweep-checkpoint/2"
SHAPE = ("family", "stack", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "d_value", "n_tokens")
WHOLE = "all"
SPLIT_ABOVE = 50_000_000
"""Attention weights from which on a lens takes long enough to be divided."""
Blocks = Mapping[str, Mapping[str, str]]
"""By name of a block, the options that ask for it."""


@dataclass(frozen=True)
class Settings:
    """In which state weights are read: part of every result's identity."""

    fold: str = "none"
    stack: str | None = None

    def __str__(self) -> str:
        return f"fold {self.fold}" + ("" if self.stack is None else f", stack {self.stack}")


@dataclass(frozen=True)
class Description:
    """A checkpoint as it was when it was last looked at."""

    source: str
    content_hash: str
    revision: str
    fingerprint: str
    """Empty where there are no files to take it from."""
    shape: Mapping[str, str | int]
    skip_reasons: Mapping[str, str | None]
    """For every lens, None if it applies, else the reason why not."""
    blocks: Mapping[str, Blocks]
    warnings: tuple[str, ...] = ()


def describe(source: str, settings: Settings, folder: str | Path) -> Description:
    """Open a checkpoint, describe it, and keep the description; the kept one if the files are still the same."""
    with one_thread(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = open_model(source)
        known, fingerprint = kept_description(source, settings, folder), _fingerprint(model.checkpoint)
        heads = model.heads(stack=settings.stack, fold=settings.fold)
        reasons = _skip_reasons(model, settings.stack)
        same = known is not None and fingerprint and known.fingerprint == fingerprint
        found = Description(
            source=source,
            content_hash=known.content_hash if known is not None and same else content_hash(model.checkpoint),
            revision=model.checkpoint.revision or "",
            fingerprint=fingerprint,
            shape=_shape(heads),
            skip_reasons=reasons,
            blocks={name: blocks(lens, heads) for name, lens in lenses().items() if reasons[name] is None},
            warnings=tuple(sorted({str(warning.message) for warning in caught})),
        )
    if found != known:
        write_text(_place(source, settings, folder), json.dumps({"schema": SCHEMA, **asdict(found)}, indent=1))
    return found


def _skip_reasons(model: Model, stack: str | None) -> dict[str, str | None]:
    """Why lenses do not apply; those that run the model also where that is not done without being asked for."""
    stored, alone, unasked = model.checkpoint.stack(stack), model.skip_reasons(stack), model.unasked_obstacle()
    found = {name: alone[name] if name in alone else lens.skip_reason(stored) for name, lens in lenses().items()}
    return {name: reason or (unasked if lenses()[name].runs else None) for name, reason in found.items()}


def blocks(lens: Lens, heads: Heads, above: int = SPLIT_ABOVE) -> Blocks:
    """The blocks of a lens's work by name; one where the lens names none or the model is small."""
    if sum(prod(heads.shape(role)) for role in ROLES) <= above:
        return {WHOLE: {}}
    divide = getattr(lens.part("measurement"), "blocks", None)
    return {WHOLE: {}} if divide is None else {name: dict(options) for name, options in divide(heads).items()}


def _place(source: str, settings: Settings, folder: str | Path) -> Path:
    identity = json.dumps([source, asdict(settings)])
    return Path(folder) / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def kept_description(source: str, settings: Settings, folder: str | Path) -> Description | None:
    """A checkpoint's description as it was kept earlier; None where there is none that can be read."""
    try:
        record = read_json(_place(source, settings, folder))
        return checked(record, Description, "the description") if record.get("schema") == SCHEMA else None
    except HeadspanError:
        return None


def content_hash(checkpoint: Checkpoint) -> str:
    """A hash of all the weights, also of those too large to be hashed for an ordinary result."""
    files = _local_files(checkpoint)
    if files is None:
        return checkpoint.store.content_hash()
    try:
        return hash_of_files({name: file_digest(path) for name, path in sorted(files.items())})
    except OSError as problem:
        raise HeadspanError(f"'{checkpoint.source}' cannot be read: {problem.strerror or problem}") from problem


def _local_files(checkpoint: Checkpoint) -> Mapping[str, Path] | None:
    """The weight files on this machine, by name, also where a GGUF file is converted as it is read."""
    store = checkpoint.store.base if isinstance(checkpoint.store, ConvertedTensors) else checkpoint.store
    return store.files if isinstance(store, LocalFiles) else None


def _fingerprint(checkpoint: Checkpoint) -> str:
    files = _local_files(checkpoint)
    if files is None:
        return ""
    facts = [(name, path.stat()) for name, path in sorted(files.items())]
    plain = [(name, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for name, s in facts]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def _shape(heads: Heads) -> dict[str, str | int]:
    stored = heads.reader.stored
    table = None if stored.stack.tokens is None else stored.names.find(*stored.stack.tokens.names)
    n_tokens = 0 if table is None else heads.checkpoint.store.infos[table].shape[0]
    numbers = (heads.n_layers, heads.n_heads, heads.n_kv_heads, heads.d_model, heads.d_head, heads.d_value, n_tokens)
    return dict(zip(SHAPE, (heads.checkpoint.family, heads.stack.name, *numbers), strict=True))


def check_same_shape(model: str, described: Mapping[int, Description]) -> None:
    """Refuse a series whose checkpoints are not of one shape, before any work is done for it."""
    steps = sorted(described)
    for step in steps[1:]:
        first, here = described[steps[0]].shape, described[step].shape
        name = next((name for name in SHAPE if first.get(name) != here.get(name)), None)
        if name is not None:
            raise ShapeError(
                f"the checkpoints of '{model}' differ in shape: {name} is {first.get(name)} at step {steps[0]} and "
                f"{here.get(name)} at step {step}; sweep over them as models of their own"
            )
