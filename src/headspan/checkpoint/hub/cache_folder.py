"""Where headspan keeps what it read from the Hub: a folder of its own in `huggingface_hub`'s place for assets.

    <HF_HOME>/assets/headspan/<host>/ranges/<content hash>/<start>-<end>-<checksum>
    <HF_HOME>/assets/headspan/<host>/models/<model>/<commit>/config.json, tokenizer.json, ...
    <HF_HOME>/assets/headspan/<host>/models/<model>/<commit>.listing.json
    <HF_HOME>/assets/headspan/<host>/models/<model>/refs/<revision>

Each host has its own folder: a content hash is what that host says it is. A cache that cannot be written to is done
without; it saves time, and nothing depends on it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import constants

from headspan.atomic import written_whole
from headspan.checkpoint.config import read_json
from headspan.checkpoint.hub.listing import Listing, parsed_listing
from headspan.checkpoint.hub.reference import COMMIT, HubReference
from headspan.errors import HeadspanError


@dataclass(frozen=True)
class CacheFolder:
    """The folder of one host."""

    root: Path
    host: str

    @classmethod
    def of(cls, host: str) -> CacheFolder:
        return cls(Path(constants.HF_ASSETS_CACHE).expanduser() / "headspan" / quote(host, safe="."), host)

    def ranges(self, digest: str) -> Path:
        """Where pieces of the file with that content hash are kept."""
        return self.root / "ranges" / digest

    def model(self, repo: str) -> Path:
        return self.root / "models" / quote(repo, safe=".")

    def snapshot(self, repo: str, commit: str) -> Path:
        """Where whole small files of a commit are kept."""
        return self.model(repo) / commit

    def remember(self, reference: HubReference, listing: Listing) -> None:
        """Keep a commit's list of files, and that the revision stood for it."""
        save(self.model(reference.repo) / f"{listing.commit}.listing.json", json.dumps(listing.as_json()).encode())
        save(self._ref(reference), listing.commit.encode())

    def last_listing(self, reference: HubReference) -> Listing | None:
        """The files of what the revision stood for when the Hub was last asked, if it ever was."""
        commit = reference.revision if reference.is_pinned else self._last_commit(reference)
        if commit is None:
            return None
        try:
            kept: dict[str, Any] = read_json(self.model(reference.repo) / f"{commit}.listing.json")
            listing = parsed_listing(kept, self.host)
        except HeadspanError:
            return None
        return listing if listing.commit == commit else None

    def _last_commit(self, reference: HubReference) -> str | None:
        try:
            commit = self._ref(reference).read_text().strip()
        except (OSError, ValueError):
            return None
        return commit if COMMIT.fullmatch(commit) else None

    def _ref(self, reference: HubReference) -> Path:
        return self.model(reference.repo) / "refs" / quote(reference.revision, safe=".")


def save(path: Path, content: bytes | bytearray | memoryview) -> bool:
    """Write a file of the cache, whole or not at all; False where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            temporary.write_bytes(content)
    except (OSError, HeadspanError):
        return False
    return True
