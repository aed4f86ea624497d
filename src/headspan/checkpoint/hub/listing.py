"""Which files a revision has: the commit it stands for, and each file's length and content hash.

One request tells all of it. The answer is data from a server: the commit and hashes become names of folders, so they
must look like what they are; lengths must be whole numbers that a file can have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headspan.checkpoint.hub.failures import not_the_hub
from headspan.checkpoint.hub.reference import COMMIT
from headspan.errors import HubError

DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
MAX_FILE_BYTES = 2**50


@dataclass(frozen=True)
class ListedFile:
    """A file at the top of a repository."""

    name: str
    size: int
    digest: str
    """SHA-256 of the content (64 digits) where the file is large, else its git blob hash (40 digits)."""


@dataclass(frozen=True)
class Listing:
    """The files of one commit, without those in folders."""

    commit: str
    files: Mapping[str, ListedFile]

    def file(self, name: str, repo: str) -> ListedFile:
        """The file of that name; an error that names it otherwise."""
        if name not in self.files:
            raise HubError(f"'{name}' is not in '{repo}' at {self.commit:.12}, though its index names it")
        return self.files[name]

    def as_json(self) -> dict[str, Any]:
        """The listing in the form the Hub gives it, for keeping on disk."""
        return {
            "sha": self.commit,
            "siblings": [{"rfilename": f.name, "size": f.size, "blobId": f.digest} for f in self.files.values()],
        }


def parsed_listing(answer: Mapping[str, Any], host: str) -> Listing:
    """A listing from what the Hub's `/api/models` answers."""
    commit, siblings = answer.get("sha"), answer.get("siblings")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit) or not isinstance(siblings, list):
        raise not_the_hub(host, "its answer names no commit and files")
    files = {}
    for sibling in siblings:
        name = sibling.get("rfilename") if isinstance(sibling, dict) else None
        if not isinstance(name, str):
            raise not_the_hub(host, "it lists a file without a name")
        if "/" not in name:
            files[name] = _listed(name, sibling, host)
    return Listing(commit, files)


def _listed(name: str, sibling: Mapping[str, Any], host: str) -> ListedFile:
    lfs = sibling.get("lfs")
    large = lfs if isinstance(lfs, dict) else {}
    size = large.get("size", sibling.get("size"))
    digest = large.get("sha256", sibling.get("blobId"))
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_FILE_BYTES:
        raise not_the_hub(host, f"it does not say how long '{name[:60]}' is")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise not_the_hub(host, f"it gives no content hash of '{name[:60]}'")
    return ListedFile(name, size, digest)
