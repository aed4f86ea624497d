"""The folder of a sweep: what it holds, whose it is, and what of it is finished.

    manifest.json            format, series and sources, lenses, what failed in the last run
    lock                     held by the sweep that is writing
    checkpoints/             a description of every checkpoint, with its content hash
    parts/<lens>/<name>.npz  one finished task each; the truth
    results.zarr/<model>/<lens>/   the same, one Zarr group per model and lens with dims `model` and `step`

A folder that holds anything else, or a newer headspan's store, is refused before any work is done for it, and left as
it is. An older one's is read if it can be (`older_formats`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headspan._version import __version__
from headspan.errors import StoreError
from headspan.sweeps.description import Settings
from headspan.sweeps.older_formats import brought_up_to_date, keep_older
from headspan.sweeps.part_file import TEMPORARY, write_text
from headspan.sweeps.spec import Series, as_record, check_places, from_record, group_name

FORMAT = 1
SCHEMA = f"headspan.sweep/{FORMAT}"


@dataclass(frozen=True)
class Store:
    """A sweep's folder."""

    path: Path

    @classmethod
    def claim(cls, path: Path, settings: Settings) -> Store:
        """The folder for a sweep: made, or found to hold one; refused if it holds anything else."""
        store = cls(path.expanduser().absolute())
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
        store = cls(Path(path).expanduser().absolute())
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
    def lock_file(self) -> Path:
        return self.path / "lock"

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
            record: dict[str, Any] = json.loads(self.manifest_file.read_text(encoding="utf-8"))
            name, _, number = str(record["schema"]).partition("/")
            written = int(number)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise StoreError(
                f"'{self.manifest_file}' cannot be read ({problem}); finished results are whole in '{self.parts}'"
            ) from problem
        if name == "headspan.sweep" and written == FORMAT:
            return record
        older = brought_up_to_date(record, self.parts) if name == "headspan.sweep" and written < FORMAT else None
        if older is None:
            by, age = record.get("headspan_version", "unknown"), "newer" if written > FORMAT else "older"
            advice = "update headspan" if written > FORMAT else f"read it with headspan {by}"
            raise StoreError(
                f"the store '{self.path}' is in the {age} format {written}, written by headspan {by}; this headspan "
                f"{__version__} reads format {FORMAT}. Nothing in it was changed: {advice}, or sweep into another store"
            )
        return older

    def series(self) -> list[Series]:
        """Every series that was ever swept into this store."""
        return from_record(self.manifest()["series"])

    def settings(self) -> Settings:
        """In which state weights were read for everything in this store."""
        return Settings(**self.manifest()["settings"])

    def check_settings(self, settings: Settings) -> None:
        """Refuse to put results of another fold state or stack beside those that are there."""
        if self.settings() != settings:
            raise StoreError(
                f"the store '{self.path}' holds results with {self.settings()}, now {settings}; choose another with -o"
            )

    def write_manifest(
        self, series: Iterable[Series], lenses: Iterable[str], settings: Settings, failures: Sequence[Any] = ()
    ) -> None:
        """Replace the manifest, whole; an older one is kept beside it."""
        if self.manifest_file.is_file() and (before := self.manifest()["schema"]) != SCHEMA:
            keep_older(self.manifest_file, int(before.rpartition("/")[2]))
        record = {"schema": SCHEMA, "headspan_version": __version__, "settings": asdict(settings)}
        record |= {"lenses": list(lenses), "series": as_record(series), "failures": [vars(one) for one in failures]}
        write_text(self.manifest_file, json.dumps(record, indent=1))

    def make_folders(self, lenses: Iterable[str]) -> None:
        """The folders that workers write to."""
        for lens in lenses:
            _make(self.parts / lens)

    def remove_leftovers(self) -> int:
        """Remove what a killed process left unfinished; returns how many files and folders."""
        removed = 0
        for folder in (self.path, self.checkpoints, *self.parts.glob("*"), *self.results.glob("*")):
            for place in folder.glob(f"{TEMPORARY}*") if folder.is_dir() else ():
                shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
                removed += 1
        return removed


def merged_series(known: Iterable[Series], asked: Iterable[Series]) -> list[Series]:
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
