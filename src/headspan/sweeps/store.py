"""The folder of a sweep: what it holds, whose it is, and what of it is finished.

    manifest.json            format, series and sources, lenses, what failed in the last run
    lock                     held by the sweep that is writing
    checkpoints/             a description of every checkpoint, with its content hash
    parts/<lens>/<name>.npz  one finished task each; the truth
    results.zarr/<model>/<lens>/   the same, one Zarr group per model and lens with dims `model` and `step`

A folder that holds anything else, or a newer headspan's store, is refused before any work is done for it, and left as
it is. Of an older format the manifest is read if it says which checkpoints were swept; their results, which have other
names, are computed anew. The next sweep keeps the older manifest and groups beside the new ones, as
`manifest.format-N.json` and `results.format-N.zarr`. Reading changes nothing on disk.

One sweep at a time (`headspan.folder_lock`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headspan._version import __version__
from headspan.errors import StoreError
from headspan.folder_lock import locked
from headspan.input_files import checked, read_json, user_path
from headspan.sweeps.checkpoints import Settings
from headspan.sweeps.parts import TEMPORARY, write_text
from headspan.sweeps.specification import Series, as_record, check_places, from_record, group_name

FORMAT = 2
SCHEMA = f"headspan.sweep/{FORMAT}"


@dataclass(frozen=True)
class Manifest:
    """A manifest as it is read: what must be in it, and of which type."""

    schema: str
    settings: Settings
    lenses: list[str]
    series: dict[str, dict[str, str]]
    failures: list[dict[str, str]]

    def __post_init__(self) -> None:
        from_record(self.series)


@dataclass(frozen=True)
class Store:
    """A sweep's folder."""

    path: Path

    @classmethod
    def claim(cls, path: Path, settings: Settings) -> Store:
        """The folder for a sweep: made, or found to hold one; refused if it holds anything else."""
        store = cls(user_path(path, StoreError).absolute())
        with _looking_into(path):
            if store.path.exists() and not store.path.is_dir():
                raise StoreError(f"'{path}' is a file; -o names a folder for the results")
            begun = store.manifest_file.is_file()
            if not begun and store.path.is_dir() and any(entry.name != "lock" for entry in store.path.iterdir()):
                raise StoreError(f"the folder '{path}' is not empty and holds no sweep; choose another with -o")
        if begun:
            store.check_settings(settings)
        _make(store.parts)
        _make(store.checkpoints)
        if not begun:
            store.write_manifest((), (), settings)
        return store

    @classmethod
    def found(cls, path: Path) -> Store:
        """The folder of a sweep that exists."""
        store = cls(user_path(path, StoreError).absolute())
        with _looking_into(path):
            begun = store.manifest_file.is_file()
        if not begun:
            raise StoreError(f"there is no sweep in '{path}'; make one with: headspan sweep SPEC -o {path}")
        store.manifest()
        return store

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    @property
    def parts(self) -> Path:
        return self.path / "parts"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def results(self) -> Path:
        return self.path / "results.zarr"

    def group(self, model: str, lens: str) -> Path:
        """Where the Zarr group of a model and lens is."""
        return self.results / group_name(model) / lens

    def manifest(self) -> dict[str, Any]:
        """What the manifest says; refused in one line if it is damaged or of a format that cannot be read."""
        try:
            record = read_json(self.manifest_file, StoreError)
            written = _format(record)
            if written == FORMAT:
                checked(record, Manifest, "manifest.json", StoreError)
                return record
        except StoreError as problem:
            raise StoreError(
                f"'{self.manifest_file}' cannot be read ({problem}); finished results are whole in '{self.parts}'"
            ) from problem
        older = _older_manifest(record, self.parts) if written < FORMAT else None
        if older is None:
            by, age = record.get("headspan_version", "unknown"), "newer" if written > FORMAT else "older"
            advice = "update headspan" if written > FORMAT else f"read it with headspan {by}"
            raise StoreError(
                f"the store '{self.path}' is in the {age} format {written}, written by headspan {by}; this headspan "
                f"{__version__} reads format {FORMAT}. Nothing in it was changed: {advice}, or sweep into another store"
            )
        return older

    @property
    def older_format(self) -> int | None:
        """The number of the format that the store is in, if it is older than today's."""
        number = int(str(self.manifest()["schema"]).rpartition("/")[2])
        return number if number < FORMAT else None

    def series(self) -> list[Series]:
        """Every series that was ever swept into this store."""
        return from_record(self.manifest()["series"])

    def settings(self) -> Settings:
        """In which state weights were read for everything in this store."""
        return checked(self.manifest()["settings"], Settings, "the settings in manifest.json", StoreError)

    def check_settings(self, settings: Settings) -> None:
        """Refuse to put results of another fold state or stack beside those that are there."""
        if self.settings() != settings:
            raise StoreError(
                f"the store '{self.path}' holds results with {self.settings()}, now {settings}; choose another with -o"
            )

    def write_manifest(
        self, series: Iterable[Series], lenses: Iterable[str], settings: Settings, failures: Sequence[Any] = ()
    ) -> None:
        """Replace the manifest, whole; an older one is kept beside it, and the groups that it goes with."""
        if self.manifest_file.is_file() and (number := self.older_format) is not None:
            self._keep_older(number)
        record = {"schema": SCHEMA, "headspan_version": __version__, "settings": asdict(settings)}
        record |= {"lenses": list(lenses), "series": as_record(series), "failures": [vars(one) for one in failures]}
        write_text(self.manifest_file, json.dumps(record, indent=1))

    def _keep_older(self, number: int) -> None:
        """Keep an older manifest and its groups, once."""
        kept, groups = self.path / f"manifest.format-{number}.json", self.path / f"results.format-{number}.zarr"
        if self.results.is_dir() and not groups.exists():
            self.results.rename(groups)
        if not kept.exists():
            write_text(kept, json.dumps(read_json(self.manifest_file, StoreError), indent=1))

    def make_folders(self, lenses: Iterable[str]) -> None:
        """The folders that workers write to."""
        for lens in lenses:
            _make(self.parts / lens)

    def remove_leftovers(self) -> None:
        """Remove what a killed process left unfinished."""
        for folder in (self.path, self.checkpoints, *self.parts.glob("*"), *self.results.glob("*")):
            for place in folder.glob(f"{TEMPORARY}*") if folder.is_dir() else ():
                shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock of the store within the block; refused at once if another process holds it."""
        return locked(self.path, "sweep", StoreError)


def _format(record: Mapping[str, Any]) -> int:
    """The number of a manifest's format."""
    found = re.fullmatch(r"headspan\.sweep/(\d{1,6})", str(record.get("schema")))
    if found is None:
        raise StoreError(f"its 'schema' is {record.get('schema')!r:.40}, not '{SCHEMA}'")
    return int(found[1])


def _older_manifest(record: Mapping[str, Any], parts: Path) -> dict[str, Any] | None:
    """An older manifest in the present form; None if it does not say what was swept.

    What it does not say is filled in: weights as stored, the state that is read by default; lenses by the folders of
    their parts.
    """
    try:
        sources = {
            str(model): {str(int(step)): str(source) for step, source in steps.items()}
            for model, steps in record["series"].items()
        }
    except (KeyError, ValueError, AttributeError, TypeError):
        return None
    filled = {
        "settings": {"fold": "none", "stack": None},
        "lenses": sorted(folder.name for folder in parts.glob("*") if folder.is_dir()),
        "failures": [],
    }
    whole = {**filled, **record, "series": sources, "failures": []}
    try:
        checked(whole, Manifest, "manifest.json", StoreError)
    except StoreError:
        return None
    return whole


def join_series(known: Iterable[Series], asked: Iterable[Series]) -> list[Series]:
    """Series known from before and those asked for now; what is asked for now decides where a step's checkpoint is."""
    merged = {each.model: dict(each.sources) for each in known}
    for each in asked:
        merged[each.model] = {**merged.get(each.model, {}), **each.sources}
    series = [Series(model, dict(sorted(sources.items()))) for model, sources in merged.items()]
    check_places(series)
    return series


@contextmanager
def _looking_into(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise StoreError(f"cannot look into the store '{folder}': {problem.strerror or problem}") from problem


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StoreError(
            f"cannot make the folder '{folder}': {problem.strerror or problem}; choose another place with -o"
        ) from problem
