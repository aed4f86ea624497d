"""From a name on the Hub to a store of tensors.

1. A revision stands for a commit. The Hub is asked which, unless the revision is a commit already; where it cannot be
   asked, what it said last time holds.
2. If `huggingface_hub`'s cache has the commit's config and weights, they are opened as the local folder they are.
3. Otherwise headers are read from the Hub, and tensors when something asks for them.

A GGUF file needs no config: it is enough that the file, or all its parts, are in the cache.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from huggingface_hub import try_to_load_from_cache

from headspan.checkpoint.adapter import CONFIG as ADAPTER
from headspan.checkpoint.config import MAX_JSON_BYTES, Config, json_object
from headspan.checkpoint.converted import GGUFFiles
from headspan.checkpoint.formats.gguf_header import GGUFHeader, without_tensors
from headspan.checkpoint.formats.local_files import (
    LocalFiles,
    folder_config,
    gguf_parts,
    name_list,
    weight_files,
    weight_names,
)
from headspan.checkpoint.hub import HubReference
from headspan.checkpoint.hub.cache import CacheFolder, Extents, Listing, parse_listing, save
from headspan.checkpoint.hub.connection import Connection, Download, check_put_off
from headspan.checkpoint.hub.hub_files import HubFiles
from headspan.checkpoint.hub.patience import (
    Attempts,
    Interrupted,
    NoSuchModel,
    Unreachable,
    not_the_hub,
    refusal,
)
from headspan.checkpoint.hub.ranged_file import RangedFile, content_digest
from headspan.errors import CheckpointError, DamagedFile, HubError
from headspan.input_files import file_bytes

BESIDE_THE_WEIGHTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
)
"""Small files that `folder` holds."""


@dataclass(frozen=True, eq=False)
class HubModel:
    """What an opened checkpoint needs to know of a model on the Hub."""

    store: GGUFFiles
    commit: str
    config: Callable[[], Config]
    folder: Callable[[], Path]
    """Fetches what stands beside the weights, and says where it is."""


def open_hub_model(reference: HubReference) -> HubModel:
    """The model that `reference` names: from `huggingface_hub`'s cache if it is there, else by ranges."""
    connection = Connection.to_the_hub()
    cache = CacheFolder.of(connection.host)
    listing = cache.last_listing(reference) if reference.is_pinned else None
    if listing is None:
        downloaded = _downloaded(reference, reference.revision) if reference.is_pinned else None
        if downloaded is not None:
            return downloaded
        try:
            listing = _ask_for_listing(connection, reference)
            cache.remember(reference, listing)
        except (Unreachable, NoSuchModel) as problem:
            downloaded = _downloaded(reference, reference.revision)
            if downloaded is not None:
                return downloaded
            listing = cache.last_listing(reference)
            if listing is None:
                raise type(problem)(f"there is no file or folder '{reference.repo}' here, and {problem}") from problem
    downloaded = _downloaded(reference, listing.commit)
    if downloaded is not None:
        return downloaded
    return _RemoteRepository(connection, cache, reference.repo, listing).model(reference.file)


def _ask_for_listing(connection: Connection, reference: HubReference) -> Listing:
    """What the Hub says a revision holds."""
    repo, revision = reference.repo, reference.revision
    url = f"{connection.endpoint}/api/models/{repo}/revision/{quote(revision, safe='')}?blobs=true"
    attempts = Attempts(connection.patience, f"the list of files of '{repo}'", connection.host)
    while True:
        try:
            with connection.answer(url) as answer:
                check_put_off(answer)
                if answer.status >= 400:
                    raise refusal(answer.status, answer.headers, repo, revision, "", answer.host)
                if answer.status != 200:
                    raise not_the_hub(answer.host, f"it answered {answer.status}")
                content = b"".join(answer.chunks(MAX_JSON_BYTES))
            return parse_listing(json_object(content, "the list of files"), connection.host)
        except Interrupted as problem:
            attempts.wait(problem)
        except HubError:
            raise
        except CheckpointError as problem:
            raise not_the_hub(connection.host, str(problem)[:120]) from problem


def _downloaded(reference: HubReference, revision: str) -> HubModel | None:
    """A revision in `huggingface_hub`'s cache, if that holds a config and all weights, or the GGUF file meant."""
    if reference.file is not None:
        names = gguf_parts(reference.file)
        found = [try_to_load_from_cache(reference.repo, name, revision=revision) for name in names]
        paths = [Path(path) for path in found if isinstance(path, str)]
        if len(paths) < len(names):
            return None
        snapshot = paths[0].parents[len(PurePosixPath(reference.file).parts) - 1]
        return _local_model(LocalFiles.of(paths), paths[0].parent, snapshot.resolve().name)
    config = try_to_load_from_cache(reference.repo, "config.json", revision=revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        paths = weight_files(folder)
    except (CheckpointError, OSError):
        return None
    return _local_model(LocalFiles.of(paths), folder, folder.resolve().name)


def _local_model(store: LocalFiles, folder: Path, commit: str) -> HubModel:
    return HubModel(store, commit, lambda: folder_config(folder), lambda: folder)


@dataclass(frozen=True, eq=False)
class _RemoteRepository:
    """One commit of one model, of which nothing has been read but its list of files."""

    connection: Connection
    cache: CacheFolder
    repo: str
    listing: Listing

    def model(self, file: str | None) -> HubModel:
        if file is not None:
            return self._of(self._parts(file))
        if ADAPTER in self.listing.files and "config.json" not in self.listing.files:
            raise HubError(
                f"'{self.repo}' is an adapter of another model; download it "
                f"(`hf download {self.repo} --local-dir NAME`) and open that folder"
            )
        return self._of(weight_names(self.listing.files, self._json, f"'{self.repo}'"))

    def _of(self, names: list[str]) -> HubModel:
        store = HubFiles.of([self._file(name) for name in names], self.connection)
        return HubModel(store, self.listing.commit, self._config, lambda: self._folder(store))

    def _parts(self, file: str) -> list[str]:
        names = gguf_parts(file)
        absent = next((name for name in names if name not in self.listing.files), None)
        if absent is not None:
            found = name_list([name for name in self.listing.files if name.endswith(".gguf")])
            raise HubError(
                f"'{self.repo}' has no file '{absent}' at {self.listing.commit:.12}; its GGUF files: {found}"
            )
        return names

    def _file(self, name: str) -> RangedFile:
        listed_file = self.listing.file(name, self.repo)
        download = Download(self.connection, self.repo, self.listing.commit, listed_file)
        return RangedFile(download, Extents(self.cache.ranges(listed_file.digest), listed_file.size))

    def _json(self, name: str) -> dict[str, object]:
        return json_object(self._file(name).whole(MAX_JSON_BYTES), name)

    def _config(self) -> Config:
        if "config.json" not in self.listing.files:
            found = name_list(self.listing.files)
            raise CheckpointError(f"'{self.repo}' has no config.json (found {found}); headspan needs it for the shapes")
        return Config(self._json("config.json"))

    def _is_kept(self, path: Path) -> bool:
        """Whether a small file is in the cache, with the content that the Hub listed."""
        listed = self.listing.file(path.name, self.repo)
        if not path.exists():
            return False
        content = file_bytes(path, MAX_JSON_BYTES, HubError)
        if content_digest(content, len(listed.digest)) == listed.digest:
            return True
        warnings.warn(f"the cached file '{path}' is damaged; it is read again", DamagedFile, stacklevel=4)
        return False

    def _folder(self, store: HubFiles) -> Path:
        folder = self.cache.snapshot(self.repo, self.listing.commit)
        for name in BESIDE_THE_WEIGHTS:
            absent = name in self.listing.files and not self._is_kept(folder / name)
            if absent and not save(folder / name, self._file(name).whole(MAX_JSON_BYTES)):
                raise HubError(f"'{name}' cannot be written to '{folder}'; make room there, or set HF_HOME")
        for name, header in list(store.gguf.items())[:1]:
            self._save_metadata(folder / PurePosixPath(name).name, name, header)
        return folder

    def _save_metadata(self, place: Path, name: str, header: GGUFHeader) -> None:
        """Keep what a tokenizer is made of, as a GGUF file without tensors."""
        if place.is_file():
            return
        content = self._file(name).read([(0, header.facts_end)])[0]
        if not save(place, without_tensors(content)):
            raise HubError(f"'{place.name}' cannot be written to '{place.parent}'; make room there, or set HF_HOME")
