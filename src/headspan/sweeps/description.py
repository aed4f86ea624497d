"""What a sweep has to know of a checkpoint before it works on it: content, shape, which lenses apply.

The content's hash names the weights: results belong to it, not to a path or a time. Hashing reads all weights, so the
description is kept, with a fingerprint of the files (sizes, inodes, times of change). Fingerprints are only ever tested
for equality; a clock that goes backwards makes a hash be computed again, nothing else.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from headspan.checkpoint import Checkpoint, open_checkpoint
from headspan.checkpoint.formats.local_files import LocalFiles, file_digest, hash_of_files
from headspan.errors import HeadspanError, ShapeError
from headspan.explorer.subjects import obstacle_to_running_unasked
from headspan.heads import Heads
from headspan.lenses import LENSES, obstacles
from headspan.sweeps.blocks import Options, blocks
from headspan.sweeps.part_file import write_text

SCHEMA = "headspan.sweep-checkpoint/1"
SHAPE = ("family", "stack", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "d_value", "n_tokens")


@dataclass(frozen=True)
class Settings:
    """In which state weights are read: part of every result's identity."""

    fold: str = "none"
    stack: str | None = None

    def __str__(self) -> str:
        return f"fold {self.fold}" + ("" if self.stack is None else f", stack {self.stack}")

    def heads(self, checkpoint: Checkpoint) -> Heads:
        """A checkpoint's heads in this state."""
        return checkpoint.heads(stack=self.stack).refolded(self.fold)


@dataclass(frozen=True)
class Description:
    """A checkpoint as it was when it was last looked at."""

    source: str
    content_hash: str
    revision: str
    fingerprint: str
    """Empty where there are no files to take it from."""
    shape: Mapping[str, str | int]
    obstacles: Mapping[str, str | None]
    blocks: Mapping[str, Mapping[str, Options]]
    warnings: tuple[str, ...] = ()


def description_file(folder: Path, source: str, settings: Settings) -> Path:
    """Where a checkpoint's description is kept."""
    identity = json.dumps([source, asdict(settings)])
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def describe(source: str, settings: Settings, folder: Path) -> Description:
    """Open a checkpoint, describe it, and keep the description; the kept one if the files are still the same."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoint = open_checkpoint(source)
        place, fingerprint = description_file(folder, source, settings), _fingerprint(checkpoint)
        known = kept_description(place)
        heads = settings.heads(checkpoint)
        hindered = _obstacles(checkpoint, settings)
    same = known is not None and fingerprint and known.fingerprint == fingerprint
    found = Description(
        source=source,
        content_hash=known.content_hash if known is not None and same else content_hash(checkpoint),
        revision=checkpoint.revision or "",
        fingerprint=fingerprint,
        shape=_shape(heads),
        obstacles=hindered,
        blocks={name: blocks(name, heads) for name, reason in hindered.items() if reason is None},
        warnings=tuple(sorted({str(warning.message) for warning in caught})),
    )
    if found != known:
        write_text(place, json.dumps({"schema": SCHEMA, **asdict(found)}, indent=1))
    return found


def _obstacles(checkpoint: Checkpoint, settings: Settings) -> dict[str, str | None]:
    """Why lenses do not apply; those that run the model also where that is not done without being asked for."""
    found, unasked = obstacles(checkpoint, settings.stack), obstacle_to_running_unasked(checkpoint)
    return {name: reason or (unasked if LENSES[name].runs else None) for name, reason in found.items()}


def kept_description(place: Path) -> Description | None:
    """A description kept earlier; None where there is none that can be read."""
    try:
        record = json.loads(place.read_text(encoding="utf-8"))
        if record.pop("schema") != SCHEMA:
            return None
        return Description(**{**record, "warnings": tuple(record["warnings"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def content_hash(checkpoint: Checkpoint) -> str:
    """A hash of all the weights, also of those too large to be hashed for an ordinary result."""
    store = checkpoint.store
    if isinstance(store, LocalFiles):
        try:
            return hash_of_files({name: file_digest(path) for name, path in sorted(store.files.items())})
        except OSError as problem:
            raise HeadspanError(f"'{checkpoint.source}' cannot be read: {problem.strerror or problem}") from problem
    return store.content_hash()


def _fingerprint(checkpoint: Checkpoint) -> str:
    if not isinstance(checkpoint.store, LocalFiles):
        return ""
    facts = [(name, path.stat()) for name, path in sorted(checkpoint.store.files.items())]
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
        differing = [name for name in SHAPE if first.get(name) != here.get(name)]
        if differing:
            name = differing[0]
            raise ShapeError(
                f"the checkpoints of '{model}' differ in shape: {name} is {first.get(name)} at step {steps[0]} and "
                f"{here.get(name)} at step {step}; sweep over them as models of their own"
            )
