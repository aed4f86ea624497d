"""What headspan keeps of the Hub: lists of files, small files, and pieces of large ones.

    <HF_HOME>/assets/headspan/<host>/ranges/<content hash>/<start>-<end>-<checksum>
    <HF_HOME>/assets/headspan/<host>/models/<model>/<commit>/config.json, tokenizer.json, ...
    <HF_HOME>/assets/headspan/<host>/models/<model>/<commit>.listing.json
    <HF_HOME>/assets/headspan/<host>/models/<model>/refs/<revision>

Each host has its own folder: a content hash is what that host says it is. A cache that cannot be written to is done
without; it saves time, and nothing depends on it.

A list of files is data from a server: the commit and hashes become names of folders, so they must look like what they
are; lengths must be whole numbers that a file can have. A piece of a large file gets its name when it is complete, so a
process that dies leaves no half piece, and several processes may write the same folder: equal names have equal content.
A piece whose length or checksum is wrong is removed and read again.
"""

from __future__ import annotations

import json
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import constants

from headspan.atomic import written_whole
from headspan.checkpoint.config import read_json
from headspan.checkpoint.hub import COMMIT, HubReference
from headspan.checkpoint.hub.patience import not_the_hub
from headspan.errors import DamagedFile, HeadspanError, HubError
from headspan.input_files import file_bytes, file_text, user_path

ByteRange = tuple[int, int]
"""The first byte, and the byte after the last."""
DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
MAX_FILE_BYTES = 2**50
PIECE_BYTES = 8 * 2**20
"""What an interrupted process loses at most, and what is read to check a checksum."""
PIECE_NAME = re.compile(r"(\d{1,18})-(\d{1,18})-([0-9a-f]{8})")


@dataclass(frozen=True)
class ListedFile:
    """A file at the top of a repository."""

    name: str
    size: int
    digest: str
    """SHA-256 of the content (64 digits) where the file is large, else its git blob hash (40 digits)."""


@dataclass(frozen=True)
class Listing:
    """The files of one commit; of those in folders only GGUF files, which are often kept so."""

    commit: str
    files: Mapping[str, ListedFile]

    def file(self, name: str, repo: str) -> ListedFile:
        """The file of that name; an error that names it otherwise."""
        if name not in self.files:
            raise HubError(
                f"'{name}' is not in '{repo}' at {self.commit:.12}, though the checkpoint needs it; "
                "name another revision"
            )
        return self.files[name]

    def as_json(self) -> dict[str, Any]:
        """The listing in the form the Hub gives it, for keeping on disk."""
        return {
            "sha": self.commit,
            "siblings": [{"rfilename": f.name, "size": f.size, "blobId": f.digest} for f in self.files.values()],
        }


def parse_listing(answer: Mapping[str, Any], host: str) -> Listing:
    """A listing from what the Hub's `/api/models` answers."""
    commit, siblings = answer.get("sha"), answer.get("siblings")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit) or not isinstance(siblings, list):
        raise not_the_hub(host, "its answer names no commit and files")
    files = {}
    for sibling in siblings:
        name = sibling.get("rfilename") if isinstance(sibling, dict) else None
        if not isinstance(name, str):
            raise not_the_hub(host, "it lists a file without a name")
        if "/" not in name or (name.endswith(".gguf") and ".." not in name):
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


@dataclass(frozen=True)
class CacheFolder:
    """The folder of one host."""

    root: Path
    host: str

    @classmethod
    def of(cls, host: str) -> CacheFolder:
        return cls(user_path(constants.HF_ASSETS_CACHE, HubError) / "headspan" / quote(host, safe="."), host)

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
            listing = parse_listing(kept, self.host)
        except HeadspanError:
            return None
        return listing if listing.commit == commit else None

    def _last_commit(self, reference: HubReference) -> str | None:
        try:
            commit = file_text(self._ref(reference)).strip()
        except HeadspanError:
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


@dataclass(frozen=True)
class Piece:
    """One stored run of bytes."""

    start: int
    end: int
    checksum: str
    path: Path

    def content(self) -> bytes | None:
        """The bytes, or None if they are gone or damaged."""
        try:
            if self.path.stat().st_size == self.end - self.start:
                content = file_bytes(self.path, PIECE_BYTES)
                if checksum(content) == self.checksum and len(content) == self.end - self.start:
                    return content
            warnings.warn(f"a cached piece of a Hub file, '{self.path}', is damaged; it is read again", DamagedFile, 3)
            self.path.unlink(missing_ok=True)
        except (OSError, HeadspanError):
            pass
        return None


def checksum(content: bytes | bytearray) -> str:
    return f"{zlib.crc32(content):08x}"


@dataclass(frozen=True)
class Extents:
    """The pieces of one remote file."""

    folder: Path
    size: int

    def pieces(self) -> list[Piece]:
        """Every stored piece, in the order of the file."""
        try:
            matches = [(PIECE_NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        except OSError:
            return []
        found = [Piece(int(m[1]), int(m[2]), m[3], path) for m, path in matches if m is not None]
        inside = [piece for piece in found if piece.start < piece.end <= min(self.size, piece.start + PIECE_BYTES)]
        return sorted(inside, key=lambda piece: (piece.start, -piece.end))

    def stored(self, wanted: ByteRange) -> Iterator[tuple[int, bytes]]:
        """Position and content of intact pieces that touch `wanted`, in order; they may overlap or leave holes."""
        for piece in self.pieces():
            if piece.start < wanted[1] and piece.end > wanted[0]:
                content = piece.content()
                if content is not None:
                    yield piece.start, content

    def store(self, start: int, content: bytes | bytearray) -> None:
        """Keep a run of bytes; where the disk refuses, go on without."""
        if content:
            save(self.folder / f"{start}-{start + len(content)}-{checksum(content)}", content)


class PieceWriter:
    """Cuts a stream into pieces and stores each when it is full; what is left is stored at the end, come what may."""

    def __init__(self, extents: Extents, start: int) -> None:
        self.extents, self.start, self.buffer = extents, start, bytearray()

    def __enter__(self) -> PieceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.extents.store(self.start, self.buffer)

    def add(self, chunk: bytes) -> None:
        self.buffer += chunk
        while len(self.buffer) >= PIECE_BYTES:
            self.extents.store(self.start, self.buffer[:PIECE_BYTES])
            self.start += PIECE_BYTES
            del self.buffer[:PIECE_BYTES]
