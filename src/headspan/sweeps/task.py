"""One task: a lens, or a block of it, on one checkpoint; or the drift from one checkpoint to the next.

A result is named by what it was computed from (content hashes, lens, block, fold state) and by nothing else. A finished
task is a file of that name: a second sweep, another number of workers, or another step with the same weights finds it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headspan.sweeps.blocks import WHOLE
from headspan.sweeps.description import Description, Settings

DRIFT = "drift"


@dataclass(frozen=True)
class Task:
    """What a worker is told. `before` is the checkpoint one step earlier, for drift alone."""

    lens: str
    model: str
    step: int
    source: str
    content_hash: str
    settings: Settings
    block: str = WHOLE
    options: Mapping[str, str] = field(default_factory=dict)
    before: Description | None = None

    @property
    def name(self) -> str:
        """The result's name: the same for the same work."""
        weights = [self.content_hash, None if self.before is None else self.before.content_hash]
        identity = json.dumps([self.lens, self.block, dict(self.options), weights, asdict(self.settings)])
        return hashlib.sha256(identity.encode()).hexdigest()[:40]

    @property
    def sources(self) -> set[str]:
        """The checkpoints that the task reads."""
        return {self.source} | (set() if self.before is None else {self.before.source})

    def file(self, parts: Path) -> Path:
        """Where the result goes."""
        return parts / self.lens / f"{self.name}.npz"

    def label(self) -> str:
        """The task for a person."""
        block = "" if self.block == WHOLE else f" {self.block}"
        return f"{self.lens}{block} of {self.model} at step {self.step}"
