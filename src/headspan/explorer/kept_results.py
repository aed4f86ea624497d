"""Results of a run that was interrupted, kept so that the next run does not compute them again.

1. Each finished lens's result is written to a file of its own, whole or not at all, in a folder named for what it is
   the result of: weights, stack, precision, version and source of headspan, versions of what runs models.
2. A run that comes to its end removes its folder; what an interrupted run left behind is removed when it is a week old.
3. A folder that cannot be written to, or a file that cannot be read, is as good as none: a report does not fail by it.

The place is `$HEADSPAN_CACHE`, else `headspan` in `$XDG_CACHE_HOME`, else `~/.cache/headspan`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from headspan.atomic import written_whole
from headspan.errors import HeadspanError
from headspan.frames import nodes_of
from headspan.heads import Heads
from headspan.lenses.run import reopened
from headspan.result import Lens, Result
from headspan.storage import read_archive, write_archive

OLDEST = 7 * 24 * 3600
"""Seconds after which what an interrupted run left behind is removed."""
SETTLED_BY = ("torch", "transformers", "numpy", "xarray", "scikit-learn")
"""Packages whose version can change a result."""


def cache_folder() -> Path:
    """Where kept results live."""
    named = os.environ.get("HEADSPAN_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headspan"


@dataclass(frozen=True)
class KeptResults:
    """The kept results of one model, as this version of headspan computes them."""

    folder: Path

    @classmethod
    def of(cls, heads: Heads, place: Path | None = None) -> KeptResults:
        """Those of these heads; what is too old is removed from the place on the way."""
        root = (place or cache_folder()) / "interrupted"
        _remove_old(root)
        return cls(root / _identity(heads))

    def result(self, lens: Lens, compute: Callable[[], Result]) -> Result:
        """The kept result of a lens, or a new one, which is then kept."""
        kept = self.read(lens)
        if kept is not None:
            return kept
        found = compute()
        self._keep(found)
        return found

    def read(self, lens: Lens) -> Result | None:
        """A kept result; None where there is none, or none that can be read."""
        try:
            nodes, header = read_archive(self._path(lens.name))
        except (HeadspanError, KeyError):
            return None
        return reopened(lens, nodes, header["attrs"])

    def has(self, lens: str) -> bool:
        """Whether there is a kept result of a lens."""
        return self._path(lens).is_file()

    def clear(self) -> None:
        """Forget everything about this model."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, lens: str) -> Path:
        return self.folder / f"{lens}.npz"

    def _keep(self, result: Result) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with written_whole(self._path(result.lens.name)) as temporary:
                write_archive(temporary, nodes_of(result.data), attrs=result.attrs)
        except (OSError, HeadspanError, TypeError):
            # A full disk, a read-only home, an attribute that JSON does not know: the next run computes it again.
            return


def _identity(heads: Heads) -> str:
    """A name for everything a result depends on."""
    facts = {**heads.provenance(), "layers": list(heads.layers), "source": source_digest()}
    facts |= {name: _version(name) for name in SETTLED_BY}
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def source_digest() -> str:
    """Of headspan's own code: while it is being worked on, its version stays what it is."""
    root, digest = Path(__file__).parents[1], sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _remove_old(root: Path) -> None:
    try:
        for folder in root.iterdir():
            if time.time() - folder.stat().st_mtime > OLDEST:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return
